//! One `RedisCluster` as its users see it, and its servers as a judge sees them.

use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use k8s_openapi::api::core::v1::{Secret, Service};
use kube::Api;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, IntoConnectionInfo};
use redis_ha_operator::api::{RedisCluster, RedisClusterSpec, RedisClusterStatus};
use world::{PodHandle, World, logs, wait_for};

use crate::judge;

/// A cluster in a namespace of its own.
#[derive(Clone)]
pub struct Cluster {
    pub world: World,
    pub namespace: String,
    pub name: String,
    pub replicas: u32,
}

impl Cluster {
    /// Creates it; the servers come up by themselves.
    pub async fn create(world: &World, namespace: &str, name: &str, spec: RedisClusterSpec) -> Result<Self> {
        let replicas = u32::try_from(spec.replicas).context("a number of pods")?;
        let api: Api<RedisCluster> = Api::namespaced(world.client(), namespace);
        api.create(&PostParams::default(), &RedisCluster::new(name, spec))
            .await
            .with_context(|| format!("create RedisCluster {namespace}/{name}"))?;
        Ok(Self { world: world.clone(), namespace: namespace.to_owned(), name: name.to_owned(), replicas })
    }

    pub async fn status(&self) -> Result<RedisClusterStatus> {
        let api: Api<RedisCluster> = Api::namespaced(self.world.client(), &self.namespace);
        Ok(api.get(&self.name).await?.status.unwrap_or_default())
    }

    /// Status of a condition: `True`, `False` or empty, and its reason.
    pub async fn condition(&self, kind: &str) -> Result<(String, String)> {
        let status = self.status().await?;
        let condition = status.conditions.into_iter().find(|condition| condition.type_ == kind);
        Ok(condition.map(|condition| (condition.status, condition.reason)).unwrap_or_default())
    }

    /// Waits until everything is in sync, the write quorum is up, and no plan is open.
    pub async fn settled(&self, limit: Duration) -> Result<RedisClusterStatus> {
        let what = format!("{}/{} is settled", self.namespace, self.name);
        let result = wait_for(&what, limit, async || {
            let status = self.status().await?;
            let is = |kind: &str| {
                status
                    .conditions
                    .iter()
                    .any(|condition| condition.type_ == kind && condition.status == "True")
            };
            let Some(record) = &status.supervision else { return Ok(None) };
            let quorum = record.write_quorum.effective == record.write_quorum.desired;
            // Where pods share a node that is said, and nothing is missing all the same.
            let crowded =
                status.conditions.iter().any(|condition| condition.reason == "MasterAndReplicaOnOneNode");
            let ready = is("Available")
                && is("ReplicationHealthy")
                && (is("FailoverReady") || crowded || self.replicas == 1);
            let done = record.plan.is_none() && quorum && ready && !is("Held");
            Ok(done.then_some(status))
        })
        .await;
        match result {
            Ok(status) => Ok(status),
            Err(error) => {
                let status = self.status().await?;
                Err(error.context(format!("last status: {}", serde_json::to_string(&status)?)))
            }
        }
    }

    /// The recorded master's pod.
    pub async fn master(&self) -> Result<PodHandle> {
        let status = self.status().await?;
        let master = status.master.context("no master is recorded")?;
        self.world.pod(&self.namespace, &master).await
    }

    pub fn pod_names(&self) -> Vec<String> {
        (0..self.replicas).map(|ordinal| format!("{}-{ordinal}", self.name)).collect()
    }

    pub async fn pods(&self) -> Result<Vec<PodHandle>> {
        let mut pods = Vec::new();
        for name in self.pod_names() {
            pods.push(self.world.pod(&self.namespace, &name).await?);
        }
        Ok(pods)
    }

    /// Password of the application, wherever it comes from.
    pub async fn password(&self) -> Result<String> {
        self.secret(&format!("{}-server", self.name), "application-password").await
    }

    /// A value of a Secret of this namespace.
    pub async fn secret(&self, secret: &str, key: &str) -> Result<String> {
        let api: Api<Secret> = Api::namespaced(self.world.client(), &self.namespace);
        let found = api.get(secret).await.with_context(|| format!("read Secret {secret}"))?;
        let value = found
            .data
            .unwrap_or_default()
            .remove(key)
            .with_context(|| format!("Secret {secret} has no {key}"))?;
        String::from_utf8(value.0).context("a readable value")
    }

    /// Address of the master Service.
    pub async fn service_ip(&self) -> Result<String> {
        let api: Api<Service> = Api::namespaced(self.world.client(), &self.namespace);
        let service = api.get(&self.name).await?;
        service.spec.and_then(|spec| spec.cluster_ip).context("the master Service has no address")
    }

    /// A connection as this user.
    pub async fn connect(&self, ip: &str, user: &str, password: &str) -> Result<MultiplexedConnection> {
        connect(ip, user, password).await
    }

    /// A connection of the application to this address.
    pub async fn app(&self, ip: &str) -> Result<MultiplexedConnection> {
        connect(ip, "default", &self.password().await?).await
    }

    /// Number of promotions of any server of this cluster, by the servers' own logs.
    pub fn promotions(&self) -> Result<usize> {
        let mut count = 0;
        for pod in self.pod_names() {
            count +=
                logs(&self.namespace, &pod, "redis")?.iter().map(|log| judge::promotions(log)).sum::<usize>();
        }
        Ok(count)
    }

    /// Value of an INFO field of one server.
    pub async fn info(&self, ip: &str, field: &str) -> Result<String> {
        let mut app = self.app(ip).await?;
        let info: String = redis::cmd("INFO").query_async(&mut app).await?;
        let prefix = format!("{field}:");
        let line = info.lines().find_map(|line| line.strip_prefix(&prefix));
        Ok(line.with_context(|| format!("INFO has no {field}"))?.trim().to_owned())
    }

    /// Writes keys and waits until this many replicas confirmed each.
    pub async fn write_confirmed(&self, prefix: &str, count: u32, replicas: u32) -> Result<Vec<String>> {
        let mut app = self.app(&self.master().await?.ip).await?;
        let keys: Vec<String> = (0..count).map(|number| format!("{prefix}-{number}")).collect();
        let mut pipe = redis::pipe();
        for key in &keys {
            pipe.cmd("SET").arg(key).arg("value").ignore();
        }
        pipe.query_async::<()>(&mut app).await.context("write keys")?;
        let confirmed: u32 = redis::cmd("WAIT").arg(replicas).arg(5000).query_async(&mut app).await?;
        ensure!(confirmed >= replicas, "only {confirmed} replicas confirmed the keys");
        Ok(keys)
    }

    /// Which of these keys are missing on this server.
    pub async fn missing(&self, ip: &str, keys: &[String]) -> Result<Vec<String>> {
        // The clients of a pod that was the master are cut once more when the proxies have followed: look again then.
        let mut looks = 0;
        loop {
            match self.look_for_missing(ip, keys).await {
                Err(_) if looks < 3 => looks += 1,
                looked => return looked,
            }
        }
    }

    async fn look_for_missing(&self, ip: &str, keys: &[String]) -> Result<Vec<String>> {
        let mut app = self.app(ip).await?;
        let mut missing = Vec::new();
        for chunk in keys.chunks(1000) {
            let mut pipe = redis::pipe();
            for key in chunk {
                pipe.cmd("EXISTS").arg(key);
            }
            let found: Vec<bool> = pipe.query_async(&mut app).await.context("look for keys")?;
            missing.extend(chunk.iter().zip(found).filter(|(_, found)| !found).map(|(key, _)| key.clone()));
        }
        Ok(missing)
    }

    /// Sets an annotation of the object.
    pub async fn annotate(&self, name: &str, value: &str) -> Result<()> {
        let api: Api<RedisCluster> = Api::namespaced(self.world.client(), &self.namespace);
        let patch = serde_json::json!({"metadata": {"annotations": {name: value}}});
        api.patch(&self.name, &PatchParams::default(), &Patch::Merge(patch)).await.context("annotate")?;
        Ok(())
    }

    /// Value of an annotation of the object.
    pub async fn annotation(&self, name: &str) -> Result<Option<String>> {
        let api: Api<RedisCluster> = Api::namespaced(self.world.client(), &self.namespace);
        Ok(api.get(&self.name).await?.metadata.annotations.unwrap_or_default().remove(name))
    }

    /// Deletes the object and waits until its pods are gone.
    pub async fn delete(&self) -> Result<()> {
        let api: Api<RedisCluster> = Api::namespaced(self.world.client(), &self.namespace);
        api.delete(&self.name, &DeleteParams::default()).await?;
        wait_for("the pods are gone", Duration::from_secs(90), async || {
            for name in self.pod_names() {
                if self.world.pod(&self.namespace, &name).await.is_ok() {
                    return Ok(None);
                }
            }
            Ok(Some(()))
        })
        .await
    }
}

/// Longest wait for an answer: longer than a `WAIT` for confirmations may take on a busy machine.
const ANSWER: Duration = Duration::from_secs(6);

/// A connection to this server, with deadlines.
pub async fn connect(ip: &str, user: &str, password: &str) -> Result<MultiplexedConnection> {
    let info = redis::ConnectionAddr::Tcp(ip.to_owned(), 6379).into_connection_info()?;
    let info = info
        .set_redis_settings(redis::RedisConnectionInfo::default().set_username(user).set_password(password));
    let client = redis::Client::open(info)?;
    // By default it gives up after half a second, whatever was asked.
    let patient = AsyncConnectionConfig::new().set_response_timeout(Some(ANSWER));
    let connect = client.get_multiplexed_async_connection_with_config(&patient);
    match tokio::time::timeout(Duration::from_secs(2), connect).await {
        Ok(connection) => connection.with_context(|| format!("connect to {ip} as {user}")),
        Err(_) => bail!("{ip} did not answer within 2 s"),
    }
}
