//! Faults many times over, with figures. What must hold is judged here; how long it took is only told.

pub mod figures;
pub mod kills;
pub mod machine;
pub mod restarts;
pub mod switches;

use std::time::Duration;

use anyhow::{Context, Result};
use k8s_openapi::api::core::v1::ConfigMap;
use k8s_openapi::api::discovery::v1::EndpointSlice;
use k8s_openapi::jiff::Timestamp;
use kube::Api;
use kube::api::{Patch, PatchParams};
use redis_ha_operator::api::{RedisClusterSpec, names};
use serde_json::json;
use tokio::time::Instant;
use world::World;

use crate::cluster::Cluster;
use crate::operator::{Operators, Options};
use crate::servers;

/// kube-proxy takes a change at once only when it had none for its minimum sync period, 1 s by default.
pub const QUIET: Duration = Duration::from_millis(1200);
/// Every node has its own processors elsewhere, here all share a few: while something is measured, only the
/// clients' own kube-proxy takes changes. No pod of these clusters uses a Service.
const OTHER_PROXIES: [&str; 3] = ["kube-proxy-node-1", "kube-proxy-node-2", "kube-proxy-node-3"];
/// How long a cluster may take to be whole again.
const SETTLE: Duration = Duration::from_secs(60);

/// One cluster of three, looked after by two operators.
pub struct Stage {
    pub cluster: Cluster,
    pub operators: Operators,
}

impl Stage {
    /// `variable` names the operator's binary. `alone`: the operators look after all namespaces, as by
    /// default; else only after the one made here. `image`: of the pods, if not the usual one.
    pub async fn set(
        world: &World,
        variable: &str,
        alone: bool,
        image: Option<&str>,
        args: &[String],
    ) -> Result<Self> {
        image.map(servers::ensure_here).transpose()?;
        let namespace = world.create_namespace("bench").await?;
        let mut operators = Operators::install_built(world, &namespace, variable).await?;
        let options = Options {
            namespace: (!alone).then(|| namespace.clone()),
            args: args.iter().map(Into::into).collect(),
        };
        operators.start_pair(&options).await?;
        let spec = RedisClusterSpec { image: image.map(ToOwned::to_owned), ..RedisClusterSpec::default() };
        let cluster = Cluster::create(world, &namespace, "cache", spec).await?;
        cluster.settled(SETTLE).await?;
        for proxy in OTHER_PROXIES {
            world.freeze_component(proxy).await?;
        }
        Ok(Self { cluster, operators })
    }

    /// Waits until the cluster is whole, and no Service was moved for that long.
    pub async fn quiet(&self, quiet: Duration) -> Result<()> {
        loop {
            self.cluster.settled(SETTLE).await.context("the cluster is not whole again")?;
            let before = self.routes().await?;
            tokio::time::sleep(quiet).await;
            if before == self.routes().await? {
                self.cluster.settled(SETTLE).await?;
                return Ok(());
            }
        }
    }

    /// How long one small write to the API server takes now: what each recorded step costs at least.
    pub async fn api_write(&self) -> Result<Duration> {
        let api: Api<ConfigMap> = Api::namespaced(self.cluster.world.client(), &self.cluster.namespace);
        let value = Timestamp::now().as_nanosecond().to_string();
        let map = json!({"apiVersion": "v1", "kind": "ConfigMap", "data": {"written": value},
            "metadata": {"name": "yardstick"}});
        let params = PatchParams::apply("bench").force();
        let start = Instant::now();
        api.patch("yardstick", &params, &Patch::Apply(map)).await.context("write the yardstick")?;
        Ok(start.elapsed())
    }

    /// Versions of the slices of both Services: any change uses up the proxies' immediate one.
    async fn routes(&self) -> Result<[Option<String>; 2]> {
        let api: Api<EndpointSlice> = Api::namespaced(self.cluster.world.client(), &self.cluster.namespace);
        let version = async |name: &str| {
            let slice = api.get_opt(name).await.with_context(|| format!("read the slice {name}"))?;
            anyhow::Ok(slice.and_then(|slice| slice.metadata.resource_version))
        };
        Ok([version(&self.cluster.name).await?, version(&names::replicas_service(&self.cluster.name)).await?])
    }

    /// Ends the cluster and the operators.
    pub async fn strike(mut self) -> Result<()> {
        for proxy in OTHER_PROXIES {
            self.cluster.world.thaw_component(proxy).await?;
        }
        for pod in self.cluster.pod_names() {
            self.cluster.world.set_restart_delay(&self.cluster.namespace, &pod, None)?;
        }
        self.cluster.delete().await?;
        while !self.operators.all().is_empty() {
            self.operators.terminate(0).await?;
        }
        Ok(())
    }
}
