//! Names that users and other programs can see: labels, annotations, objects, users. Pure.

/// API group.
pub const GROUP: &str = "redis-ha.dev";
/// Pods, Services, ...: name of the `RedisCluster` they belong to.
pub const CLUSTER_LABEL: &str = "redis-ha.dev/cluster";
/// Pods: `master` or `replica`. For people and budgets; never read by a decision.
pub const ROLE_LABEL: &str = "redis-ha.dev/role";
/// Value of the role label of the recorded master.
pub const MASTER_ROLE: &str = "master";
/// Value of the role label of a replica.
pub const REPLICA_ROLE: &str = "replica";
/// Claims: `true` once the cluster had data, for the day when the status is lost.
pub const EVER_HAD_DATA_ANNOTATION: &str = "redis-ha.dev/ever-had-data";
/// EndpointSlice: epoch of the decision that wrote it.
pub const EPOCH_ANNOTATION: &str = "redis-ha.dev/epoch";
/// EndpointSlice: uid of the pod it leads to.
pub const POD_UID_ANNOTATION: &str = "redis-ha.dev/pod-uid";
/// `RedisCluster`: move the master to this pod, or to `any`. Taken away when it is answered.
pub const SWITCHOVER_ANNOTATION: &str = "redis-ha.dev/switchover";
/// `RedisCluster`: the epoch up to which a person has seen what happened.
pub const ACKNOWLEDGE_ANNOTATION: &str = "redis-ha.dev/acknowledge";
/// Applied objects: hash of what was applied, to see drift without asking the server.
pub const APPLIED_ANNOTATION: &str = "redis-ha.dev/applied";
/// Field manager of all server-side applies, and `managed-by` of the slices.
pub const MANAGER: &str = "redis-ha.dev";
/// Name of the port in pods, Services and slices.
pub const PORT_NAME: &str = "redis";
/// Name of the server's container.
pub const CONTAINER: &str = "redis";
/// Name of the volume that holds the server's files.
pub const DATA_VOLUME: &str = "data";
/// Longest name of a cluster: the longest derived name must still be a DNS label.
pub const MAX_NAME: usize = 40;

/// Names derived from one cluster's name.
pub fn headless_service(cluster: &str) -> String {
    format!("{cluster}-headless")
}
/// Service for reads: the replicas in sync.
pub fn replicas_service(cluster: &str) -> String {
    format!("{cluster}-replicas")
}
/// Disruption budget of the master.
pub fn master_budget(cluster: &str) -> String {
    format!("{cluster}-master")
}
/// Disruption budget of the replicas.
pub fn replicas_budget(cluster: &str) -> String {
    format!("{cluster}-replicas")
}
/// Claim of the pod with this number, as a StatefulSet names it.
pub fn claim(cluster: &str, ordinal: u32) -> String {
    format!("{DATA_VOLUME}-{cluster}-{ordinal}")
}
/// `ConfigMap` with the boot file.
pub fn config_map(cluster: &str) -> String {
    format!("{cluster}-config")
}
/// Secret of the application: key `password`.
pub fn auth_secret(cluster: &str) -> String {
    format!("{cluster}-auth")
}
/// Secret of the servers: `users.conf` and the passwords it was made from.
pub fn server_secret(cluster: &str) -> String {
    format!("{cluster}-server")
}

/// ACL user of the operator; per cluster uid, so that a recycled address can never let us in elsewhere.
pub fn operator_user(cluster_uid: &str) -> String {
    format!("rha-op-{}", short(cluster_uid))
}
/// ACL user of replication.
pub fn replication_user(cluster_uid: &str) -> String {
    format!("rha-repl-{}", short(cluster_uid))
}

fn short(uid: &str) -> String {
    uid.chars().filter(char::is_ascii_alphanumeric).take(8).collect()
}
