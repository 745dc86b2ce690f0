//! What safety rests on, by name. In builds for the mutation check one of them can be switched off, to see that the
//! simulator notices; in every other build each is simply there. Pure.

/// One mechanism.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Mechanism {
    // Of the servers and of whoever carries out effects: the simulator switches these off.
    FencedBoot,
    ReplicationUserOff,
    ReplicationUserAfterRecord,
    EpochAndPlanTest,
    RoutePrecondition,
    CutPredecessor,
    LeadershipAtEffect,
    CommandBoundToProcess,
    // Of the core.
    PlanBeforeCommand,
    ClaimByEachTerm,
    SuccessorOnRecord,
    NobodyElseMeanwhile,
    OnlyRecordedSuccessor,
    QuorumBefore,
    EpochAtUndo,
    Veto,
    AliveByWitness,
    QualifiedWitness,
    DeliveredBytes,
    LastLook,
    Drain,
    Permission,
    FinalOffset,
    LineageCompared,
    IdChangeRecorded,
    OffsetOrder,
    Stragglers,
    EveryPodAtBootstrap,
    ShrinkGuard,
    QuorumOrder,
    SelfDoubt,
}

impl Mechanism {
    /// All of them.
    pub const ALL: &[Mechanism] = &[
        Self::FencedBoot,
        Self::ReplicationUserOff,
        Self::ReplicationUserAfterRecord,
        Self::EpochAndPlanTest,
        Self::RoutePrecondition,
        Self::CutPredecessor,
        Self::LeadershipAtEffect,
        Self::CommandBoundToProcess,
        Self::PlanBeforeCommand,
        Self::ClaimByEachTerm,
        Self::SuccessorOnRecord,
        Self::NobodyElseMeanwhile,
        Self::OnlyRecordedSuccessor,
        Self::QuorumBefore,
        Self::EpochAtUndo,
        Self::Veto,
        Self::AliveByWitness,
        Self::QualifiedWitness,
        Self::DeliveredBytes,
        Self::LastLook,
        Self::Drain,
        Self::Permission,
        Self::FinalOffset,
        Self::LineageCompared,
        Self::IdChangeRecorded,
        Self::OffsetOrder,
        Self::Stragglers,
        Self::EveryPodAtBootstrap,
        Self::ShrinkGuard,
        Self::QuorumOrder,
        Self::SelfDoubt,
    ];
}

#[cfg(feature = "mutants")]
thread_local! {
    static OFF: std::cell::Cell<Option<Mechanism>> = const { std::cell::Cell::new(None) };
}

/// Switches this one off, or all on, for the calling thread.
#[cfg(feature = "mutants")]
pub fn switch_off(mechanism: Option<Mechanism>) {
    OFF.set(mechanism);
}

/// Is it there?
#[cfg(feature = "mutants")]
pub fn on(mechanism: Mechanism) -> bool {
    OFF.get() != Some(mechanism)
}

/// Is it there? Always.
#[cfg(not(feature = "mutants"))]
pub const fn on(_: Mechanism) -> bool {
    true
}
