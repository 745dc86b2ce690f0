//! The status: what people read, and under `supervision` the supervisor's own record.
//!
//! The supervisor's task is the only writer of the whole status of its cluster. Nothing here moves
//! while nothing changes: no offsets, no ages.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// What the operator knows and did.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct RedisClusterStatus {
    /// One word for the whole: Creating, Ready, Degraded, FailingOver, Held, Failed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub phase: Option<Phase>,
    /// Name of the pod that is the recorded master.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub master: Option<String>,
    /// Counter of role decisions; only grows.
    pub epoch: u64,
    /// Pods that exist.
    pub replicas: i32,
    /// Pods that are placed: the master, and the replicas in sync with it.
    pub ready_replicas: i32,
    /// Label selector of the pods, for the scale subresource.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub selector: Option<String>,
    /// Generation of the spec that the controller has applied.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// Each pod with its role and state.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub members: Vec<MemberStatus>,
    /// The supervisor's record. Nobody else writes it; editing it by hand can lose data.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub supervision: Option<Supervision>,
    /// The last change of the master that was finished.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_failover: Option<LastFailover>,
    /// Available, WritesAccepted, ReplicationHealthy, FailoverReady, Progressing, Held, SpecValid.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["type"]))]
    pub conditions: Vec<Condition>,
}

/// The whole in one word.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum Phase {
    /// No master has been recorded yet.
    Creating,
    /// The master takes writes and all replicas are in sync.
    Ready,
    /// The master takes writes; something else is missing.
    Degraded,
    /// A change of the master is under way.
    FailingOver,
    /// The supervisor deliberately does nothing; the Held condition says why.
    Held,
    /// The spec cannot be applied; the SpecValid condition says why.
    Failed,
}

/// One pod as people see it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct MemberStatus {
    /// Name of the pod.
    pub pod: String,
    /// master, replica or none.
    pub role: String,
    /// One word: InSync, Syncing, Fenced, Unreachable, Missing, ...
    pub state: String,
}

/// The record that makes role changes safe across crashes: every change is written here by
/// compare-and-swap before the first Redis command.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct Supervision {
    /// Counter of role decisions; each claim and each decision raises it.
    pub epoch: u64,
    /// The lease term that claimed this cluster last.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub holder: Option<String>,
    /// The process that is the master.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub master: Option<ProcessRef>,
    /// True once any key was seen: from then on an empty node never wins over data.
    pub ever_had_data: bool,
    /// Uids of the pods that were in sync with a recorded master once.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub registered: Vec<String>,
    /// `min-replicas-to-write`: what is wanted, and what is certainly in force.
    pub write_quorum: WriteQuorum,
    /// When masters were replaced of which nobody knew for certain that they had ended, the last three times.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(with = "Vec<String>")]
    pub presumed: Vec<Time>,
    /// Replication ids of this data set, oldest first; the last one is current.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub lineage: Vec<Lineage>,
    /// The one unfinished role change.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub plan: Option<Plan>,
}

/// A server process: a pod may run several in its life, one after the other.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ProcessRef {
    /// Name of the pod.
    pub pod: String,
    /// Uid of the pod.
    pub uid: String,
    /// `run_id` of INFO: new at each start of the server.
    pub run_id: String,
}

/// The write lease: `min-replicas-to-write` of the master.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct WriteQuorum {
    /// What the profile asks for.
    pub desired: u32,
    /// A lower bound of what the master enforces now.
    pub effective: u32,
}

/// One replication id of the data set.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Lineage {
    /// `master_replid` of INFO.
    pub id: String,
    /// Last offset under this id that belongs to the data set; absent for the current id.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub valid_up_to: Option<i64>,
}

/// A recorded, unfinished role change.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Plan {
    /// Unique; every write that belongs to the plan tests it.
    pub id: String,
    /// What kind of change.
    pub kind: PlanKind,
    /// How far it has come.
    pub step: PlanStep,
    /// Why, in one CamelCase word.
    pub reason: String,
    /// The master that is replaced.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub from: Option<ProcessRef>,
    /// The process that is to be promoted; recorded before the promotion is sent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub to: Option<ProcessRef>,
    /// Uids of the pods whose data may be replaced by the new master's.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub overwrites: Vec<String>,
    /// The lease term that carries it out.
    pub holder: String,
    /// The write quorum that was in force before: what the permission rule R + W > N uses.
    pub w_before: u32,
    /// When it was recorded.
    #[schemars(with = "String", extend("format" = "date-time"))]
    pub started_at: Time,
}

/// Kinds of role changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum PlanKind {
    /// The first master of a cluster that never had data.
    Bootstrap,
    /// The master died; the best replica replaces it.
    Failover,
    /// The master is well, and another pod takes its place without losing a write.
    Switchover,
    /// No replica in sync is left: a pod is promoted with the data that it brought with it.
    Recover,
}

/// Steps of a plan, in their order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
pub enum PlanStep {
    /// Intent is on record; replicas are being cut from the old master.
    Recorded,
    /// Point of no return: the old master is being demoted, drained, and a successor chosen.
    Revoked,
    /// The successor is on record; its promotion may have been sent.
    Chosen,
    /// The successor is master and on record; routing and repointing go on.
    Promoted,
}

/// The last finished change of the master.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct LastFailover {
    /// When it was finished.
    #[schemars(with = "String", extend("format" = "date-time"))]
    pub at: Time,
    /// What kind of change.
    pub kind: PlanKind,
    /// Pod that was the master before.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub from: Option<String>,
    /// Pod that is the master since.
    pub to: String,
    /// Why, in one CamelCase word.
    pub reason: String,
    /// From the first bad sign to the promotion on record, in milliseconds. Absent after a takeover
    /// of the plan by another operator, who did not see its beginning.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub took_ms: Option<u64>,
    /// A lower bound of the bytes of replication stream that were lost: the old master's last sampled
    /// offset minus the new master's. Absent when the old master was not sampled.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lost_bytes_known: Option<i64>,
    /// Milliseconds from the first bad sign to each stage.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stages: Option<Stages>,
}

/// Milliseconds from the first bad sign to each stage of a failover.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct Stages {
    /// The death was certain enough to act.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub confirmed: Option<u64>,
    /// The plan was on record.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub recorded: Option<u64>,
    /// The replicas were cut from the old master and the successor was on record.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub chosen: Option<u64>,
    /// The successor said it is master.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub promoted: Option<u64>,
    /// The master Service pointed to it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub routed: Option<u64>,
    /// Every other reachable replica followed it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub healed: Option<u64>,
}
