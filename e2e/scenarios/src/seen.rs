//! A cluster as it is seen from outside: servers' own words, the Service's slice, Events. Reads only, apart from
//! the restart delay of its pods.

use std::collections::{BTreeSet, HashMap};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use k8s_openapi::api::events::v1::Event;
use kube::Api;
use kube::api::ListParams;
use redis::aio::MultiplexedConnection;
use redis_ha_operator::api::{RedisCluster, names};
use world::{PodHandle, wait_for};

use crate::cluster::Cluster;

/// An Event as people read it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Told {
    pub warning: bool,
    pub reason: String,
    pub note: String,
}

impl Cluster {
    /// How long each of its servers stays down when it has ended; nothing: as a kubelet has it.
    pub fn restart_after(&self, delay: Option<Duration>) -> Result<()> {
        self.pod_names().iter().try_for_each(|pod| self.world.set_restart_delay(&self.namespace, pod, delay))
    }

    /// Uid of the object.
    pub async fn uid(&self) -> Result<String> {
        let api: Api<RedisCluster> = Api::namespaced(self.world.client(), &self.namespace);
        api.get(&self.name).await?.metadata.uid.context("an object has no uid")
    }

    /// A connection as the operator's own user.
    pub async fn operator(&self, ip: &str) -> Result<MultiplexedConnection> {
        let password = self.secret(&names::server_secret(&self.name), "operator-password").await?;
        self.connect(ip, &names::operator_user(&self.uid().await?), &password).await
    }

    /// All fields of a server's INFO.
    pub async fn all_info(&self, ip: &str) -> Result<HashMap<String, String>> {
        let mut app = self.app(ip).await?;
        let info: String = redis::cmd("INFO").query_async(&mut app).await?;
        let fields = info.lines().filter_map(|line| line.split_once(':'));
        Ok(fields.map(|(field, value)| (field.to_owned(), value.trim().to_owned())).collect())
    }

    /// Name and version of its servers, which must be the same on all pods, such as `Valkey 9.1.2`.
    pub async fn server(&self) -> Result<String> {
        let mut found = BTreeSet::new();
        for pod in self.pods().await? {
            let info = self.all_info(&pod.ip).await?;
            // Valkey says with redis_version which Redis it is compatible to.
            let of = |name: &str, field: &str| info.get(field).map(|version| format!("{name} {version}"));
            let server = of("Valkey", "valkey_version").or_else(|| of("Redis", "redis_version"));
            found.insert(server.with_context(|| format!("the server of {} tells no version", pod.name))?);
        }
        ensure!(found.len() == 1, "the pods run different servers: {found:?}");
        found.pop_first().context("there is no pod")
    }

    /// `run_id` of each server.
    pub async fn run_ids(&self) -> Result<Vec<String>> {
        let mut found = Vec::new();
        for pod in self.pods().await? {
            found.push(self.info(&pod.ip, "run_id").await?);
        }
        Ok(found)
    }

    /// Address that the master Service leads to.
    pub async fn routed_to(&self) -> Result<Option<String>> {
        let api: Api<EndpointSlice> = Api::namespaced(self.world.client(), &self.namespace);
        let slice = api.get(&self.name).await.context("read the master's slice")?;
        ensure!(slice.endpoints.len() <= 1, "the slice has {} endpoints", slice.endpoints.len());
        Ok(slice.endpoints.into_iter().next().and_then(|endpoint| endpoint.addresses.into_iter().next()))
    }

    /// Waits until one server alone is master, on record and routed to, and each other follows it; returns it.
    pub async fn one_master(&self, limit: Duration) -> Result<PodHandle> {
        let what = format!("{}/{} has one master", self.namespace, self.name);
        wait_for(&what, limit, async || self.judge().await.map(Some)).await
    }

    async fn judge(&self) -> Result<PodHandle> {
        let status = self.status().await?;
        let recorded = status.master.context("no master is on record")?;
        let plan = status.supervision.and_then(|record| record.plan);
        ensure!(plan.is_none(), "a plan is open: {plan:?}");
        let pods = self.pods().await?;
        let master =
            pods.iter().find(|pod| pod.name == recorded).context("the recorded master has no pod")?;
        for pod in &pods {
            let info = self.all_info(&pod.ip).await?;
            let field = |name: &str| info.get(name).map(String::as_str).unwrap_or_default();
            if pod.name == master.name {
                ensure!(field("role") == "master", "{} is on record but no master", pod.name);
            } else {
                ensure!(field("role") == "slave", "{} is a master beside {}", pod.name, master.name);
                ensure!(field("master_host") == master.ip, "{} follows {}", pod.name, field("master_host"));
                ensure!(field("master_link_status") == "up", "{} is not in sync", pod.name);
            }
        }
        let routed = self.routed_to().await?;
        ensure!(routed.as_ref() == Some(&master.ip), "routed to {routed:?}, the master is {}", master.ip);
        Ok(master.clone())
    }

    /// What was told about it, oldest first.
    pub async fn told(&self) -> Result<Vec<Told>> {
        let api: Api<Event> = Api::namespaced(self.world.client(), &self.namespace);
        let mut events = api.list(&ListParams::default()).await?.items;
        events.retain(|event| {
            event.regarding.as_ref().is_some_and(|it| {
                it.kind.as_deref() == Some("RedisCluster") && it.name.as_deref() == Some(&self.name)
            })
        });
        events.sort_by_key(|event| event.event_time.as_ref().map(|time| time.0));
        let told = events.into_iter().map(|event| Told {
            warning: event.type_.as_deref() == Some("Warning"),
            reason: event.reason.unwrap_or_default(),
            note: event.note.unwrap_or_default(),
        });
        Ok(told.collect())
    }

    /// Waits for an Event with this reason.
    pub async fn is_told(&self, reason: &str, limit: Duration) -> Result<Told> {
        let what = format!("the Event {reason} of {}/{}", self.namespace, self.name);
        wait_for(&what, limit, async || Ok(self.told().await?.into_iter().find(|told| told.reason == reason)))
            .await
    }

    /// Waits until a condition has this status and reason; returns its message.
    pub async fn says(&self, kind: &str, status: &str, reason: &str, limit: Duration) -> Result<String> {
        let what = format!("{}/{} says {kind}={status} {reason}", self.namespace, self.name);
        wait_for(&what, limit, async || {
            let conditions = self.status().await?.conditions;
            let found =
                conditions.into_iter().find(|it| it.type_ == kind).context("no such condition yet")?;
            ensure!(found.status == status && found.reason == reason, "it says {found:?}");
            Ok(Some(found.message))
        })
        .await
    }

    /// Waits until its master takes a write.
    pub async fn takes_writes(&self, limit: Duration) -> Result<()> {
        let what = format!("{}/{} takes a write", self.namespace, self.name);
        wait_for(&what, limit, async || {
            let mut app = self.app(&self.master().await?.ip).await?;
            redis::cmd("SET").arg("takes-writes").arg("1").query_async::<()>(&mut app).await?;
            Ok(Some(()))
        })
        .await
    }
}
