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
    /// The master became empty under an unknown replication id while replicas hold data.
    EmptyMaster,
    /// Somebody else moved the master, and data may be lost by following.
    ExternalFailover,
    /// Somebody else's FAILOVER does not end.
    ForeignFailover,
    /// The master is alive and does not let us in.
    AccessProblem,
    /// The master loads a data set without having been restarted.
    LoadingMaster,
    /// A script keeps the master busy.
    BusyMaster,
    /// The recorded master is dead, and others claim to be masters.
    Ambiguous,
    /// The best candidate lacks more than the user allows.
    TooStale,
    /// Deaths that are only presumed come too often.
    Flapping,
    /// The master should not stay, but nobody can take its place.
    NoSuccessor,
    /// The master cannot save, and no other pod can take its place.
    SickMaster,
    /// A replica holds writes that the recorded data does not have.
    Diverged,
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
            Held::EmptyMaster => "EmptyMaster",
            Held::ExternalFailover => "ExternalFailover",
            Held::ForeignFailover => "ForeignFailover",
            Held::AccessProblem => "AccessProblem",
            Held::LoadingMaster => "LoadingMaster",
            Held::BusyMaster => "BusyMaster",
            Held::Ambiguous => "Ambiguous",
            Held::TooStale => "TooStale",
            Held::Flapping => "Flapping",
            Held::NoSuccessor => "NoSuccessor",
            Held::SickMaster => "SickMaster",
            Held::Diverged => "Diverged",
        }
    }
}
