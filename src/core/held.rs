//! Reasons for deliberately doing nothing. Pure.

/// Why the supervisor holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Held {
    /// The API server does not answer: nothing can be recorded, so nothing is done.
    ControlPlaneLost,
    /// No pod can be reached: most likely it is us.
    BlindSupervisor,
    /// We cannot reach the master, its replicas can.
    SupervisorPartitioned,
    /// The master does not answer, and no replica can say that it is dead.
    DeathUnconfirmed,
    /// The old master may still be acknowledged by a replica we cannot see.
    NoQuorum,
    /// No pod may be promoted.
    NoSafeCandidate,
    /// The recorded successor can neither be read nor is it proven ended.
    WaitingForTarget,
    /// Every pod booted anew, and one that may hold newer data is not back yet.
    WaitingForMembers,
    /// A pod holds data of no known lineage, and no master has been recorded.
    UnknownData,
    /// A failover would be allowed, but `spec.failover.mode` is `Manual`.
    ManualMode,
    /// A situation that is recognized, but for which no action has been decided.
    NotYetDecided,
}

impl Held {
    pub fn as_str(self) -> &'static str {
        match self {
            Held::ControlPlaneLost => "ControlPlaneLost",
            Held::BlindSupervisor => "BlindSupervisor",
            Held::SupervisorPartitioned => "SupervisorPartitioned",
            Held::DeathUnconfirmed => "DeathUnconfirmed",
            Held::NoQuorum => "NoQuorum",
            Held::NoSafeCandidate => "NoSafeCandidate",
            Held::WaitingForTarget => "WaitingForTarget",
            Held::WaitingForMembers => "WaitingForMembers",
            Held::UnknownData => "UnknownData",
            Held::ManualMode => "ManualMode",
            Held::NotYetDecided => "NotYetDecided",
        }
    }
}
