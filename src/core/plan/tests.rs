//! From record to record.

use super::*;
use crate::core::facts::Info;
use crate::core::scene::Scene;

fn author(next_epoch: u64) -> Author<'static> {
    Author { term: "t2", next_epoch }
}

fn process(name: &str) -> ProcessRef {
    ProcessRef { pod: name.into(), uid: format!("uid-{name}"), run_id: format!("run-{name}") }
}

fn failover() -> Draft {
    Draft::new(PlanKind::Failover, "Test", Some(process("a")))
}

fn opened() -> Supervision {
    let record = Scene::settled(3).record;
    open(&record, &author(8), &failover(), Profile::Balanced, Timestamp::UNIX_EPOCH)
}

fn info(replid2: &str, second_offset: i64) -> Info {
    let mut scene = Scene::settled(3);
    let mut info = scene.info(0).clone();
    info.replid = "fresh".to_owned();
    info.replid2 = replid2.to_owned();
    info.second_offset = second_offset;
    info
}

/// Whoever was not compared with it may hold newer data.
#[test]
fn a_pod_promoted_with_its_own_data_makes_strangers_of_the_rest() {
    for (kind, registered) in [(PlanKind::Failover, vec!["a", "b", "c"]), (PlanKind::Recover, vec!["b", "c"])]
    {
        let draft = Draft { kind, to: Some(process("b")), overwrites: vec!["c".to_owned()], ..failover() };
        let before = Supervision { registered: vec!["a".to_owned()], ..Supervision::default() };
        let record = open(&before, &author(1), &draft, Profile::Balanced, Timestamp::UNIX_EPOCH);
        let info = crate::core::scene::Scene::settled(2).info(0).clone();
        let next = promoted(&record, &process("b"), &info, vec!["b".to_owned(), "c".to_owned()]);
        assert_eq!(next.registered, registered);
    }
}

#[test]
fn opening_a_plan_claims_the_cluster_and_takes_the_write_quorum_out_of_force() {
    let record = opened();
    let plan = record.plan.clone().unwrap();
    assert_eq!((record.epoch, record.holder.as_deref()), (8, Some("t2")));
    assert_eq!((plan.holder.as_str(), plan.step, plan.w_before), ("t2", PlanStep::Recorded, 1));
    assert_eq!(record.write_quorum.effective, 0);
}

#[test]
fn a_plan_that_replaces_a_plan_counts_no_write_quorum() {
    let record = open(&opened(), &author(9), &failover(), Profile::Balanced, Timestamp::UNIX_EPOCH);
    assert_eq!(record.plan.unwrap().w_before, 0);
}

#[test]
fn a_plan_whose_successor_is_known_begins_at_the_choice() {
    let draft = Draft { kind: PlanKind::Bootstrap, to: Some(process("a")), from: None, ..failover() };
    let plan = open(&Supervision::default(), &author(1), &draft, Profile::Balanced, Timestamp::UNIX_EPOCH)
        .plan
        .unwrap();
    assert_eq!(plan.step, PlanStep::Chosen);
}

#[test]
fn two_plans_never_share_an_id() {
    let first = opened().plan.unwrap().id;
    let second =
        open(&Scene::settled(3).record, &author(9), &failover(), Profile::Balanced, Timestamp::UNIX_EPOCH)
            .plan
            .unwrap()
            .id;
    assert_ne!(first, second);
}

#[test]
fn choosing_the_old_master_itself_makes_its_old_quorum_worthless() {
    assert_eq!(choose(&opened(), &author(9), process("b")).plan.unwrap().w_before, 1);
    assert_eq!(choose(&opened(), &author(9), process("a")).plan.unwrap().w_before, 0);
}

#[test]
fn choosing_again_raises_the_epoch_and_forgets_the_successor() {
    let record = choose_again(&choose(&opened(), &author(9), process("b")), &author(9));
    let plan = record.plan.unwrap();
    assert_eq!((record.epoch, plan.step, plan.to, plan.w_before), (9, PlanStep::Revoked, None, 1));
}

#[test]
fn a_promotion_ends_the_current_id_where_the_successor_took_over() {
    let record =
        promoted(&choose(&opened(), &author(9), process("b")), &process("b"), &info("line", 1001), vec![]);
    assert_eq!(record.master, Some(process("b")));
    assert_eq!(record.lineage[0], Lineage { id: "line".to_owned(), valid_up_to: Some(1000) });
    assert_eq!(record.lineage[1], Lineage { id: "fresh".to_owned(), valid_up_to: None });
}

#[test]
fn a_promotion_without_a_common_history_leaves_nothing_of_the_old_id_comparable() {
    let record =
        promoted(&choose(&opened(), &author(9), process("b")), &process("b"), &info("random", 1), vec![]);
    assert_eq!(record.lineage[0].valid_up_to, Some(-1));
}

#[test]
fn the_lineage_keeps_its_newest_eight_ids() {
    let mut record = Scene::settled(3).record;
    for number in 0..20 {
        record = id_changed(&record, &Info { replid: format!("id{number}"), ..info("line", 1) });
    }
    let ids: Vec<&str> = record.lineage.iter().map(|lineage| lineage.id.as_str()).collect();
    assert_eq!(ids, ["id12", "id13", "id14", "id15", "id16", "id17", "id18", "id19"]);
    assert_eq!(record.lineage.iter().filter(|lineage| lineage.valid_up_to.is_none()).count(), 1);
}

#[test]
fn giving_up_restores_the_write_quorum_in_the_same_write() {
    let record = give_up(&opened());
    assert_eq!((record.plan, record.write_quorum.effective), (None, 1));
}

#[test]
fn a_claim_names_the_term_in_the_record_and_in_its_plan() {
    let record = claim(&opened(), &Author { term: "t3", next_epoch: 12 });
    assert_eq!((record.epoch, record.holder.as_deref()), (12, Some("t3")));
    assert_eq!(record.plan.unwrap().holder, "t3");
}
