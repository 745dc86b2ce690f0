//! The spec: what users write. The rules that `kubectl apply` checks stand beside the fields; what no
//! rule can say is checked in `core::valid`. Types only.

use kube::{CustomResource, KubeSchema};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::pod_template::PodTemplate;
use super::quantity::Quantity;
use super::service::ServiceOptions;
use super::status::RedisClusterStatus;
use super::storage::Storage;

/// A Redis that stays writable when its master dies. `spec: {}` is a complete cluster of three pods.
#[derive(CustomResource, Clone, Debug, PartialEq, Serialize, Deserialize, KubeSchema)]
#[kube(
    group = "redis-ha.dev",
    version = "v1alpha1",
    kind = "RedisCluster",
    plural = "redisclusters",
    shortname = "rdc",
    category = "all",
    namespaced,
    status = "RedisClusterStatus",
    doc = "A Redis that stays writable when its master dies.",
    derive = "PartialEq",
    scale(
        spec_replicas_path = ".spec.replicas",
        status_replicas_path = ".status.replicas",
        label_selector_path = ".status.selector"
    ),
    printcolumn(name = "Phase", type_ = "string", json_path = ".status.phase"),
    printcolumn(name = "Master", type_ = "string", json_path = ".status.master"),
    printcolumn(name = "Ready", type_ = "integer", json_path = ".status.readyReplicas"),
    printcolumn(name = "Epoch", type_ = "integer", json_path = ".status.epoch"),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp"),
    validation = Rule::new("size(self.metadata.name) <= 40 && self.metadata.name.matches('^[a-z]([-a-z0-9]*[a-z0-9])?$')").message("metadata.name must be at most 40 lower-case letters, digits and '-', begin with a letter and end with a letter or digit: pods and Services are named after it"),
    validation = Rule::new("!has(self.spec.auth) || !has(self.spec.auth.secretName) || self.spec.auth.secretName != self.metadata.name + '-server'").message("spec.auth.secretName must not be the operator's own Secret <name>-server: name a Secret of yours")
)]
#[serde(rename_all = "camelCase")]
#[x_kube(
    // Both sides of the default look at the old storage: whoever adds storage is told that, and not about persistence.
    validation = Rule::new("(has(self.persistence) ? self.persistence : (has(oldSelf.storage) ? 'AOF' : 'None')) == (has(oldSelf.persistence) ? oldSelf.persistence : (has(oldSelf.storage) ? 'AOF' : 'None'))").message("spec.persistence cannot be changed: create a new RedisCluster and copy the data"),
    validation = Rule::new("has(self.storage) == has(oldSelf.storage)").message("spec.storage cannot be added or removed: create a new RedisCluster and copy the data"),
    validation = Rule::new("!has(self.storage) || !has(self.persistence) || self.persistence != 'None'").message("spec.persistence None would leave the volumes of spec.storage empty: leave one of the two out"),
    validation = Rule::new("(has(self.auth) && has(self.auth.secretName) ? self.auth.secretName : '') == (has(oldSelf.auth) && has(oldSelf.auth.secretName) ? oldSelf.auth.secretName : '')").message("spec.auth.secretName cannot be changed: put the new password into the same Secret, or create a new RedisCluster")
)]
pub struct RedisClusterSpec {
    /// Number of pods, the master included, 1 to 9. With 1 there is no replica, hence no failover; with 2 or more a
    /// write is refused while no replica is in sync.
    #[serde(default = "default_replicas")]
    #[schemars(range(min = 1, max = 9))]
    #[x_kube(validation = Rule::new("self >= 1 && self <= 9").message("spec.replicas must be 1 to 9: one master and up to eight replicas"))]
    pub replicas: i32,

    /// Container image of the server: Redis 6.2 or later, or Valkey. Empty: the operator's
    /// `--default-redis-image`. A running pod keeps its image until it is restarted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 512))]
    #[x_kube(validation = Rule::new("!self.matches('[[:space:]]')").message("spec.image must not contain spaces: write registry/name:tag or leave it empty"))]
    pub image: Option<String>,

    /// What is chosen where safety of the data and being writable exclude each other: `Cache` (write quorum 0, replaced
    /// soon, no waiting for an old master's end), `Balanced` (write quorum 1, given up when no replica is left) or
    /// `Durable` (write quorum 1, never given up; what may lose data waits for a person). The fields of `failover`
    /// override it.
    #[serde(default)]
    pub profile: Profile,

    /// True: the operator leaves all objects as they are, whatever the spec says. Failover goes on.
    #[serde(default)]
    pub paused: bool,

    /// A volume for each pod. Without it the disk lives as long as the pod, and replicas are what keeps the data.
    /// Cannot be added, removed or changed, except `retain`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub storage: Option<Storage>,

    /// What a server writes to its own disk: `AOF` (every write, flushed each second), `RDB` (snapshots) or `None`.
    /// Without it: `AOF` with `storage`, `None` without. Cannot be changed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub persistence: Option<Persistence>,

    /// Where the application's password comes from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub auth: Option<Auth>,

    /// When and how the operator replaces a dead master.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failover: Option<Failover>,

    /// CPU and memory of each server. With a memory limit `maxmemory` is set to 0.6 of it: the rest is for buffers
    /// and for the copies that a snapshot or a sync needs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resources: Option<Resources>,

    /// What is added to each pod, as in a pod. Labels and annotations come beside the operator's own; every other
    /// field replaces the operator's own as a whole. A running pod keeps what it has until it is restarted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pod_template: Option<PodTemplate>,

    /// The Service `<name>`, which leads to the master.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub service: Option<ServiceOptions>,

    /// The Service `<name>-replicas`, which leads to the replicas in sync, for reads that may be a little old.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub replicas_service: Option<ServiceOptions>,
}

fn default_replicas() -> i32 {
    3
}

impl Default for RedisClusterSpec {
    /// `spec: {}`
    fn default() -> Self {
        Self {
            replicas: default_replicas(),
            image: None,
            profile: Profile::default(),
            paused: false,
            storage: None,
            persistence: None,
            auth: None,
            failover: None,
            resources: None,
            pod_template: None,
            service: None,
            replicas_service: None,
        }
    }
}

/// What a server writes to its own disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum Persistence {
    /// Append-only file, flushed each second.
    #[serde(rename = "AOF")]
    Aof,
    /// Snapshots at Redis' usual save points.
    #[serde(rename = "RDB")]
    Rdb,
    /// Nothing.
    None,
}

/// Where the application's password comes from.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct Auth {
    /// Secret in the same namespace whose key `password` is the password of the `default` user, byte by byte (mind a
    /// newline at its end). Without it a password is generated into Secret `<name>-auth`. Label your Secret
    /// `redis-ha.dev/cluster: <name>` so that a change of it is seen at once; running pods take a new
    /// password when they are restarted. Cannot be changed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 253))]
    #[x_kube(validation = Rule::new("self.matches('^[a-z0-9]([-.a-z0-9]*[a-z0-9])?$')").message("spec.auth.secretName must be the name of a Secret: lower-case letters, digits, '-' and '.'; leave auth out to have a password generated"))]
    pub secret_name: Option<String>,
}

/// What is chosen where safety of the data and being writable exclude each other.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum Profile {
    /// Being writable: no write quorum, no waiting for an old master's end.
    Cache,
    /// A write quorum of one replica, relaxed when no replica is left.
    #[default]
    Balanced,
    /// The data: the write quorum is never relaxed, and nothing that may lose data is done without a person.
    Durable,
}

/// When and how the operator replaces a dead master.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct Failover {
    /// Whether the operator replaces a dead master by itself (`Automatic`), or only decides and says what it would do
    /// (`Manual`).
    #[serde(default)]
    pub mode: FailoverMode,
    /// How long nobody, neither the operator nor a replica, must have had word from a master whose process is not
    /// known to have ended, before it counts as dead; `1s` to `5m`, without it `3s`. A process that is
    /// known to have ended is replaced at once.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 32))]
    #[x_kube(validation = Rule::new("self.matches('^([0-9]+([.][0-9]+)?(ms|s|m))+$') && duration(self) >= duration('1s') && duration(self) <= duration('5m')").message("spec.failover.unreachableAfter must be a duration from 1s to 5m, for example 3s"))]
    pub unreachable_after: Option<String>,
    /// How long a master that accepts connections may answer nothing before it counts as dead; `300ms` to `5m`. Without
    /// it `6s` (profile `Cache`: `2s`): a script that runs for 5 s makes a server silent, and then it says so.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 32))]
    #[x_kube(validation = Rule::new("self.matches('^([0-9]+([.][0-9]+)?(ms|s|m))+$') && duration(self) >= duration('300ms') && duration(self) <= duration('5m')").message("spec.failover.hungAfter must be a duration from 300ms to 5m, for example 6s"))]
    pub hung_after: Option<String>,
    /// A replica that is known to lack more bytes of the old master's stream than this does not become the master, for
    /// example `1Mi`; without it any may. What the old master wrote in its last tenth of a second is not known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[x_kube(validation = Rule::new("isQuantity(string(self)) && !quantity(string(self)).isLessThan(quantity('0'))").message("spec.failover.maxLostBytes must be a number of bytes, for example 1Mi"))]
    pub max_lost_bytes: Option<Quantity>,
}

/// Whether the operator acts by itself.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum FailoverMode {
    /// It acts.
    #[default]
    Automatic,
    /// It only says.
    Manual,
}

/// CPU and memory of each server, as in a container.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
#[x_kube(
    validation = Rule::new("!has(self.limits) || !has(self.limits.memory) || (isQuantity(string(self.limits.memory)) && !quantity(string(self.limits.memory)).isLessThan(quantity('160Mi')))").message("spec.resources.limits.memory must be at least 160Mi: 0.6 of it has to hold the replication backlog of 64 MB and some data"),
    validation = Rule::new("!has(self.limits) || !has(self.requests) || !has(self.limits.memory) || !has(self.requests.memory) || (isQuantity(string(self.limits.memory)) && isQuantity(string(self.requests.memory)) && !quantity(string(self.requests.memory)).isGreaterThan(quantity(string(self.limits.memory))))").message("spec.resources.requests.memory must not exceed spec.resources.limits.memory: raise the limit or lower the request"),
    validation = Rule::new("!has(self.limits) || !has(self.requests) || !has(self.limits.cpu) || !has(self.requests.cpu) || (isQuantity(string(self.limits.cpu)) && isQuantity(string(self.requests.cpu)) && !quantity(string(self.requests.cpu)).isGreaterThan(quantity(string(self.limits.cpu))))").message("spec.resources.requests.cpu must not exceed spec.resources.limits.cpu: raise the limit or lower the request")
)]
pub struct Resources {
    /// What the scheduler reserves.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub requests: Option<ResourceList>,
    /// What a server may use at most.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limits: Option<ResourceList>,
}

/// Amounts.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ResourceList {
    /// Cores, for example `500m` or `2`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpu: Option<Quantity>,
    /// Bytes, for example `2Gi`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory: Option<Quantity>,
}
