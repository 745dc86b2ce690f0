//! Plain values about pods and servers, as they come in from the two outer worlds. Pure.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::time::Duration;

use k8s_openapi::jiff::Timestamp;

pub use crate::api::spec::Profile;

/// A moment on a clock that counts suspension (`CLOCK_BOOTTIME`), since an arbitrary start.
pub type Mono = Duration;

/// The time of an event: `mono` for all ages and deadlines, `wall` only for what people read.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Now {
    pub mono: Mono,
    pub wall: Timestamp,
}

/// Identity of one connection to one server process; never used again.
pub type LinkId = u64;

/// Names one effect whose result comes back as an event; never used again.
pub type Ticket = u64;

/// Port on which every server listens.
pub const REDIS_PORT: u16 = 6379;

/// What Kubernetes says of one pod of the cluster (owned, by uid, by our StatefulSet).
#[derive(Clone, Debug, PartialEq)]
pub struct PodFact {
    pub name: String,
    pub uid: String,
    /// Number at the end of the name.
    pub ordinal: u32,
    /// Absent until the pod's sandbox has an address.
    pub ip: Option<IpAddr>,
    pub node: Option<String>,
    /// What is known of that node.
    pub node_state: NodeState,
    /// It has a deletion timestamp.
    pub terminating: bool,
    /// Value of the role label, as seen.
    pub role_label: Option<String>,
}

/// What Kubernetes says of a node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum NodeState {
    #[default]
    Fit,
    /// Cordoned, or tainted so that pods leave it: what runs there will be moved.
    Leaving,
    /// Deleted, not ready, or declared out of service: what ran there may have ended.
    Lost,
}

/// Role in Redis' own words.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    Master,
    Replica,
}

/// `slaveN` lines of a master's INFO.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AttachedReplica {
    pub ip: String,
    pub port: u16,
    /// `online`, `wait_bgsave`, `send_bulk`, ...
    pub state: String,
    /// Acknowledged offset; 0 until the first acknowledgement.
    pub offset: i64,
    /// Seconds since the last acknowledgement.
    pub lag: i64,
}

/// The fields of INFO that decisions use. Offsets are signed: Redis says -1 for "none" in places.
#[expect(clippy::struct_excessive_bools, reason = "each is one independent field of INFO")]
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Info {
    pub run_id: String,
    /// `redis_version` (Valkey reports a compatible one here, too).
    pub redis_version: String,
    pub uptime_seconds: u64,
    pub role: Role,
    /// Where a replica was told to look for its master.
    pub master_host: Option<String>,
    pub master_port: u16,
    /// `master_link_status:up`
    pub link_up: bool,
    /// `master_link_down_since_seconds`; -1 when the link was never up.
    pub link_down_since: Option<i64>,
    /// `master_last_io_seconds_ago`; -1 when the link is down.
    pub last_io: Option<i64>,
    /// `master_sync_in_progress:1`
    pub sync_in_progress: bool,
    pub replid: String,
    pub replid2: String,
    pub second_offset: i64,
    /// A master's own offset. Of a replica it can lie; see `replica_offset`.
    pub master_offset: i64,
    /// `slave_repl_offset`: a replica's position. 1 with the link down means none.
    pub replica_offset: Option<i64>,
    /// A master's replicas.
    pub attached: Vec<AttachedReplica>,
    /// `loading:1`
    pub loading: bool,
    /// Sum of `keys=` over all databases.
    pub keys: u64,
    /// `rdb_last_bgsave_status` or `aof_last_write_status` is not `ok`: it may refuse writes with MISCONF.
    pub cannot_save: bool,
    /// `master_failover_state` is not `no-failover`: somebody sent FAILOVER.
    pub failover_running: bool,
    /// `min_slaves_good_slaves` of a master with a write quorum.
    pub good_replicas: Option<u32>,
}

impl Info {
    /// Replica of nobody: the placeholder address of the boot file, at which nothing can listen.
    pub fn is_fenced(&self) -> bool {
        self.role == Role::Replica
            && self.master_host.as_deref() == Some(PLACEHOLDER_HOST)
            && self.master_port == 0
    }
}

/// Host of the placeholder master; together with port 0 nothing can listen there.
pub const PLACEHOLDER_HOST: &str = "127.0.0.1";

/// What the spec asks of the supervisor, resolved (explicit > profile > built-in).
#[derive(Clone, Debug, PartialEq)]
pub struct Desired {
    /// Pods, master included.
    pub replicas: u32,
    /// Write quorum when enough replicas are in sync (0 for a single pod).
    pub write_quorum: u32,
    pub profile: Profile,
    /// How long a master must be refused or unroutable before that may mean death.
    pub unreachable_after: Duration,
    /// How long a master must accept connections and answer nothing before that may mean death.
    pub hung_after: Duration,
    /// A successor that is known to lack more bytes of the stream than this is refused.
    pub max_lost_bytes: Option<u64>,
    /// `false`: decide and say, never act.
    pub automatic: bool,
    /// The volumes say that there was data: one is marked so, or is older than the `RedisCluster`. For the day when
    /// there is no record: then this is no first start.
    pub data_expected: bool,
    /// Fewer pods are wanted than run: so many. Those with a higher ordinal are to go.
    pub scale_in_to: Option<u32>,
    /// Value of the switchover annotation: name of a pod, or `any`.
    pub switchover: Option<String>,
    /// Value of the acknowledgement annotation: the epoch up to which a person has seen what happened.
    pub acknowledged: Option<u64>,
}

/// The controller's part of the status, handed over to the supervisor's task.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ControllerReport {
    pub observed_generation: Option<i64>,
    /// Pods that exist.
    pub replicas: i32,
    pub selector: Option<String>,
    /// The watched object has the supervisor's record in its status.
    pub recorded: bool,
    /// `None`: the spec is valid. Otherwise (reason, message).
    pub spec_invalid: Option<(String, String)>,
    /// `None`: all objects equal the spec. Otherwise (reason, message): a failing or foreign object, a
    /// restart that is pending, a scale step that waits.
    pub progressing: Option<(String, String)>,
    /// `spec.paused`: objects are left as they are.
    pub paused: bool,
}

/// The master Service's EndpointSlice as read or watched.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RouteFact {
    pub ip: Option<String>,
    /// Uid of the pod, from the annotation.
    pub uid: Option<String>,
    /// Epoch, from the annotation.
    pub epoch: u64,
}

/// The replicas Service's EndpointSlice as read or watched.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ReadsFact {
    /// (address, uid of the pod)
    pub endpoints: BTreeSet<(String, String)>,
    /// Epoch, from the annotation.
    pub epoch: u64,
}
