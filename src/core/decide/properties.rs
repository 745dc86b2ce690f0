//! What must hold for the whole decision table, whatever the situation.

use std::time::Duration;

use proptest::prelude::*;

use super::*;
use crate::core::scene::{NOW, Scene};

const SECOND: Duration = Duration::from_secs(1);

/// How a master can look.
#[derive(Clone, Debug)]
enum MasterLooks {
    Well,
    Hung(u64),
    Refused(u64, bool),
    Unroutable(u64),
    Restarted(u64, bool),
}

/// How a replica can look.
#[derive(Clone, Debug)]
enum ReplicaLooks {
    Streaming(i64),
    LinkDown(u64),
    Restarted(u64),
    Unroutable(u64),
    Behind(i64),
}

fn master_looks() -> impl Strategy<Value = MasterLooks> {
    prop_oneof![
        Just(MasterLooks::Well),
        (0..20_000_u64).prop_map(MasterLooks::Hung),
        (10..20_000_u64, any::<bool>()).prop_map(|(ms, lost)| MasterLooks::Refused(ms, lost)),
        (10..20_000_u64).prop_map(MasterLooks::Unroutable),
        (0..2_u64, any::<bool>()).prop_map(|(keys, confirmed)| MasterLooks::Restarted(keys, confirmed)),
    ]
}

fn replica_looks() -> impl Strategy<Value = ReplicaLooks> {
    prop_oneof![
        (0..6_i64).prop_map(ReplicaLooks::Streaming),
        (0..20_u64).prop_map(ReplicaLooks::LinkDown),
        (0..2_u64).prop_map(ReplicaLooks::Restarted),
        (0..20_000_u64).prop_map(ReplicaLooks::Unroutable),
        (1..1000_i64).prop_map(ReplicaLooks::Behind),
    ]
}

fn scenes() -> impl Strategy<Value = Scene> {
    let replicas = prop::collection::vec(replica_looks(), 1..5);
    (master_looks(), replicas, 0..2_u32, any::<bool>()).prop_map(|(master, replicas, quorum, gone)| {
        let mut scene = Scene::settled(u32::try_from(replicas.len() + 1).unwrap());
        scene.record.write_quorum.effective = quorum;
        let millis = Duration::from_millis;
        match master {
            MasterLooks::Well => {}
            MasterLooks::Hung(ms) => scene.hang(0, millis(ms)),
            MasterLooks::Refused(ms, lost) => {
                scene.refuse(0, millis(ms));
                if !lost {
                    scene.member(0).lost_at = None;
                }
            }
            MasterLooks::Unroutable(ms) => scene.unroutable(0, millis(ms)),
            MasterLooks::Restarted(keys, confirmed) => {
                scene.restart(0, keys);
                scene.replaced_confirmed = confirmed;
            }
        }
        scene.member(0).listed = !gone;
        for (ordinal, looks) in (1..).zip(replicas) {
            match looks {
                ReplicaLooks::Streaming(word) => scene.info(ordinal).last_io = Some(word),
                ReplicaLooks::LinkDown(s) => scene.lose_link(ordinal, Duration::from_secs(s)),
                ReplicaLooks::Restarted(keys) => scene.restart(ordinal, keys),
                ReplicaLooks::Unroutable(ms) => scene.unroutable(ordinal, millis(ms)),
                ReplicaLooks::Behind(bytes) => {
                    scene.lose_link(ordinal, Duration::ZERO);
                    scene.info(ordinal).replica_offset = Some(1000 - bytes);
                }
            }
        }
        scene
    })
}

fn opens(scene: &Scene) -> bool {
    matches!(decide(&scene.situation()).1, Decision::Open(..))
}

/// As dead: a well master may hand over.
fn replaces(scene: &Scene) -> bool {
    matches!(decide(&scene.situation()).1, Decision::Open(draft, _) if draft.kind != PlanKind::Switchover)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4000))]

    /// Knowing less never leads to a role change that knowing more forbade. With write quorum 0 it can: there
    /// only witnesses speak for a master that is out of reach, and a lost witness says nothing.
    #[test]
    fn removing_evidence_never_turns_a_hold_into_a_promotion(scene in scenes()) {
        if !opens(&scene) && scene.record.write_quorum.effective > 0 {
            for ordinal in 1..u32::try_from(scene.members.len()).unwrap() {
                let mut less = scene.clone();
                less.member(ordinal).sample = None;
                prop_assert!(!opens(&less), "without the word of red-{ordinal}: {:?}", decide(&less.situation()));
                let mut unreachable = scene.clone();
                unreachable.unroutable(ordinal, 30 * SECOND);
                prop_assert!(!opens(&unreachable), "with red-{ordinal} out of reach: {:?}", decide(&unreachable.situation()));
            }
        }
    }

    /// Whoever answers as the recorded master is never replaced.
    #[test]
    fn a_master_that_answers_is_never_replaced(scene in scenes()) {
        if scene.situation().well_master().is_some() {
            prop_assert!(!replaces(&scene));
        }
    }

    /// While a replica is being fed by the recorded process, it is never replaced.
    #[test]
    fn a_master_with_a_living_witness_is_never_replaced(scene in scenes()) {
        let situation = scene.situation();
        let fed = situation.members.values().any(|member| {
            member.pod.uid != "u0"
                && member.reading(NOW).is_some_and(|info| info.link_up && info.last_io.is_some_and(|word| word <= 2))
        });
        let replaced = situation.replaced_confirmed;
        if fed && !replaced {
            prop_assert!(!replaces(&scene));
        }
    }

    /// Nothing empty is promoted while somebody holds data.
    #[test]
    fn nothing_empty_is_promoted_over_data(scene in scenes()) {
        if let Decision::Open(draft, _) = decide(&scene.situation()).1
            && let Some(to) = draft.to
        {
            let empty = scene.members[&to.uid].sample.as_ref().unwrap().info.keys == 0;
            let data = scene.members.values().any(|member| member.sample.as_ref().is_some_and(|sample| sample.info.keys > 0));
            prop_assert!(!(empty && data));
        }
    }
}
