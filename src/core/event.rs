//! What goes into the supervisor's state machine and what comes out. Pure.

use std::net::IpAddr;

use crate::api::status::{LastFailover, PlanKind, RedisClusterStatus};
use crate::core::facts::{
    ControllerReport, Desired, Info, LinkId, Mono, PodFact, ReadsFact, RouteFact, Ticket,
};

/// Something happened.
#[derive(Clone, Debug, PartialEq)]
pub enum Event {
    /// This operator holds the lease; `term` is new at each acquisition.
    Leading { term: String },
    /// The lease could not be renewed in time, but nobody else is known to hold it (the API server may be away):
    /// no more changes, but probing goes on so that the evidence stays warm.
    Lapsed,
    /// Somebody else holds the lease, or nobody does yet: no effects at all.
    Standby,
    /// The object as read live: at the start, and after a refused or unknown write.
    Stored(Box<Stored>),
    /// The spec, resolved; comes again when it changes.
    Desired(Desired),
    /// All pods of the cluster, as watched; comes again when anything in them changes.
    Pods(Vec<PodFact>),
    /// The controller's part of the status.
    Reported(ControllerReport),
    /// The master's EndpointSlice as read or watched; `None`: it does not exist.
    RouteSeen(Option<RouteFact>),
    /// The replicas' EndpointSlice as watched; `None`: it does not exist.
    ReadsSeen(Option<ReadsFact>),
    /// Answer to [`Effect::Dial`]. `Silent` may be followed by another outcome of the same dial.
    Dialed { uid: String, outcome: DialOutcome },
    /// Answer to [`Effect::Knock`].
    Knocked { uid: String, outcome: Knock },
    /// End of file, or an error after which the connection is useless.
    LinkLost { uid: String, link: LinkId },
    /// Answer to [`Effect::Probe`], however late.
    Probed { uid: String, link: LinkId, asked_at: Mono, outcome: ProbeOutcome },
    /// Answer to [`Effect::Command`], however late.
    Replied { ticket: Ticket, outcome: CommandOutcome },
    /// Answer to [`Effect::WriteStatus`].
    StatusWritten { ticket: Ticket, outcome: WriteOutcome },
    /// Answer to [`Effect::Route`].
    RouteWritten { ticket: Ticket, outcome: WriteOutcome },
    /// Answer to [`Effect::RouteReads`].
    ReadsWritten { ticket: Ticket, outcome: WriteOutcome },
    /// Answer to [`Effect::CheckLease`]: whether a live read shows this operator as the holder.
    LeaseChecked { ticket: Ticket, held: bool },
    /// Answer to [`Effect::ConfirmPod`]: the address of the pod with that uid by a live read; `None` when
    /// there is no such pod. Not sent when the read failed: the core asks again.
    PodConfirmed { ticket: Ticket, ip: Option<IpAddr> },
    /// The wake-up asked for, or simply time passing.
    Tick,
}

/// The stored object, as far as the supervisor needs it.
#[derive(Clone, Debug, PartialEq)]
pub struct Stored {
    pub uid: String,
    pub resource_version: String,
    pub status: Option<RedisClusterStatus>,
}

/// How a connection attempt ended.
#[derive(Clone, Debug, PartialEq)]
pub enum DialOutcome {
    /// Authenticated, and bound to the process that answered this INFO.
    Connected { link: LinkId, asked_at: Mono, info: Box<Info> },
    /// Nothing listens.
    Refused,
    /// No TCP connection within the deadline, or no route.
    Unroutable,
    /// TCP connected, but no answer within the probe deadline; the attempt goes on.
    Silent,
    /// The server answers but does not let us in (wrong password, too many clients).
    Denied(String),
    /// Connected, then broken before the first INFO.
    Broken(String),
}

/// How a bare TCP connect ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Knock {
    Accepted,
    Refused,
    Unroutable,
}

/// What a probe brought.
#[derive(Clone, Debug, PartialEq)]
pub enum ProbeOutcome {
    Answered(Box<Info>),
    /// The server answered something else than INFO: `BUSY`, `LOADING`, `NOPERM`, ...
    Refused(String),
}

/// How a role command ended.
#[derive(Clone, Debug, PartialEq)]
pub enum CommandOutcome {
    /// Carried out as a whole; INFO of the same transaction.
    Done(Box<Info>),
    /// The server refused; nothing of it was carried out.
    Refused(String),
    /// No reply: it may or may not have been carried out.
    Lost(String),
    /// This operator does not lead any more, so it was not even sent.
    NotSent,
}

/// How a write to the API server ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WriteOutcome {
    Written,
    /// The precondition did not hold: somebody else wrote.
    Conflict,
    /// The object does not exist any more.
    Gone,
    /// This operator does not lead any more, so it was not even sent.
    NotSent,
    /// No answer, or an answer that says nothing about the write.
    Unknown(String),
    /// Refused for another reason (RBAC, validation).
    Denied(String),
}

/// Something is to be done. Every effect names its object by uid; commands name the connection on which
/// the process was judged, so that they can never reach another one.
#[derive(Clone, Debug, PartialEq)]
pub enum Effect {
    /// Open a connection: TCP, HELLO with the operator's user, `CLIENT KILL USER` of that same user (cuts
    /// a paused predecessor), what the server's version needs, INFO.
    Dial { uid: String, ip: IpAddr },
    /// Bare TCP connect, to tell "no route" from "hung" while a link is open and silent.
    Knock { uid: String, ip: IpAddr },
    /// Close the connection to this pod, if any.
    HangUp { uid: String },
    /// Ask INFO.
    Probe { uid: String, link: LinkId },
    /// Change a server.
    Command { ticket: Ticket, uid: String, link: LinkId, command: RoleCommand },
    /// Compare-and-swap of the whole status.
    WriteStatus { ticket: Ticket, expect: Expect, status: Box<RedisClusterStatus> },
    /// Read the object live; answered by [`Event::Stored`].
    ReadObject,
    /// Read the lease live.
    CheckLease { ticket: Ticket },
    /// Read the pod live.
    ConfirmPod { ticket: Ticket, pod: String, uid: String },
    /// Point the master Service to this endpoint, or to nobody.
    Route { ticket: Ticket, endpoint: Option<Endpoint>, epoch: u64 },
    /// Point the replicas Service to these endpoints.
    RouteReads { ticket: Ticket, endpoints: Vec<Endpoint>, epoch: u64 },
    /// Set or remove the pod's role label (for people and budgets; never read by a decision).
    Label { pod: String, uid: String, role: Option<&'static str> },
    /// Delete the pod with this uid, so that Kubernetes makes another one.
    DeletePod { pod: String, uid: String },
    /// Remove the switchover annotation, if it still has this value.
    ClearSwitchover { value: String },
    /// Let another operator lead: this one does not reach what it needs.
    YieldLease,
    /// Tell people: Event and log line.
    Tell(Notice),
    /// Count something.
    Measure(Measure),
}

impl Effect {
    /// Something that decisions rest on is changed by it. Labels and Events are for people.
    pub fn is_change(&self) -> bool {
        matches!(
            self,
            Effect::Command { .. }
                | Effect::WriteStatus { .. }
                | Effect::Route { .. }
                | Effect::RouteReads { .. }
                | Effect::DeletePod { .. }
                | Effect::ClearSwitchover { .. }
                | Effect::YieldLease
        )
    }
}

/// What must still be true for a status write.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Expect {
    /// There is no supervision yet: nothing but the resource version can be tested.
    First { uid: String, resource_version: String },
    /// Same object, same epoch, and the same plan if there is one.
    At { uid: String, epoch: u64, plan: Option<String> },
}

/// Where a Service leads.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Endpoint {
    pub pod: String,
    pub uid: String,
    pub ip: IpAddr,
    pub node: Option<String>,
}

/// Commands that change a server. Each is one transaction with INFO in it, verified by the core.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RoleCommand {
    /// Cut a replica from its master; data and position stay.
    /// `CLIENT UNPAUSE` (its reply awaited), then `MULTI; ACL SETUSER repl off; REPLICAOF placeholder; INFO; EXEC`.
    Detach,
    /// Make a master a fenced replica of nobody and cut its clients.
    /// `MULTI; ACL SETUSER repl off; REPLICAOF placeholder; CLIENT KILL TYPE normal SKIPME yes; CLIENT KILL TYPE pubsub; INFO; EXEC`
    Demote,
    /// Hold back the clients' writes for a short time, so that a replica catches up.
    /// `MULTI; CLIENT PAUSE ms WRITE; INFO; EXEC`
    Pause { millis: u64 },
    /// `MULTI; CLIENT UNPAUSE; INFO; EXEC`
    Unpause,
    /// Make a master a fenced replica of nobody, and read its final position. Its clients stay connected: what they hold
    /// back is refused when the pause ends.
    /// `MULTI; ACL SETUSER repl off; REPLICAOF placeholder; INFO; EXEC`
    StepDown,
    /// `MULTI; CONFIG SET min-replicas-to-write W; REPLICAOF NO ONE; CLIENT UNPAUSE; INFO; EXEC`; the replication user
    /// stays off.
    Promote { write_quorum: u32 },
    /// Let replicas sync from this master: `ACL SETUSER repl on`, after its id is on record.
    Serve,
    /// Follow the recorded master.
    /// `MULTI; ACL SETUSER repl off; CONFIG SET min-replicas-to-write 0; REPLICAOF ip port; CLIENT UNPAUSE; [CLIENT KILL ...]; INFO; EXEC`
    Follow { ip: IpAddr, port: u16, cut_clients: bool },
    /// `CONFIG SET min-replicas-to-write`
    SetWriteQuorum(u32),
    /// Cut everybody but us: clients that were led here by a route that has moved since.
    /// `MULTI; CLIENT KILL TYPE normal SKIPME yes; CLIENT KILL TYPE pubsub; INFO; EXEC`
    CutClients,
    /// End a script that keeps the server busy and has not written yet. Not a transaction: a busy server takes none.
    KillScript,
}

/// A sentence for people, with its machine reason.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Notice {
    pub warning: bool,
    /// CamelCase, from a closed set.
    pub reason: &'static str,
    pub message: String,
    /// Epoch of the decision: with the reason it names the Event, so that it is said once.
    pub epoch: u64,
}

/// Something to count.
#[derive(Clone, Debug, PartialEq)]
pub enum Measure {
    /// A role change was finished.
    Finished(Box<LastFailover>),
    /// A plan was closed because the master turned out to be well.
    FalseAlarm { kind: PlanKind },
    /// The gauges of this cluster changed.
    State(StateGauges),
}

/// Gauges of one cluster.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct StateGauges {
    pub epoch: u64,
    pub has_master: bool,
    pub writes_accepted: bool,
    pub failover_ready: bool,
    pub members_in_sync: u32,
    pub members: u32,
    pub write_quorum_effective: u32,
    /// Reason of the Held condition, if held.
    pub held: Option<&'static str>,
}
