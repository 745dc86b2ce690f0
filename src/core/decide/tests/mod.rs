//! The decision table, row by row: each test is named after its row.

mod alive;
mod dead;
mod integrity;
mod may_act;
mod moving;
mod replicas;
mod starting;

use std::time::Duration;

use super::*;
use crate::api::status::PlanStep;
use crate::api::status::{Plan, Supervision};
use crate::core::event::RoleCommand;
use crate::core::facts::{NodeState, Profile};
use crate::core::scene::{NOW, Scene, ip};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::Timestamp;

const SECOND: Duration = Duration::from_secs(1);
const MS: Duration = Duration::from_millis(1);

fn rule(scene: &Scene) -> &'static str {
    decide(&scene.situation()).0
}

fn held(scene: &Scene) -> (&'static str, Held) {
    match decide(&scene.situation()) {
        (rule, Decision::Hold(held, _)) => (rule, held),
        other => panic!("expected a hold, not {other:?}"),
    }
}

fn opened(scene: &Scene) -> (&'static str, Draft, Death) {
    match decide(&scene.situation()) {
        (rule, Decision::Open(draft, death)) => (rule, *draft, death),
        other => panic!("expected a role change, not {other:?}"),
    }
}

/// Healed, and this said meanwhile.
fn said(scene: &Scene) -> (&'static str, Option<Held>) {
    match decide(&scene.situation()) {
        (rule, Decision::Heal(said)) => (rule, said.map(|(held, _)| held)),
        other => panic!("expected healing, not {other:?}"),
    }
}

/// The master was killed 20 ms ago and every replica noticed.
fn killed() -> Scene {
    let mut scene = Scene::settled(3);
    scene.refuse(0, 20 * MS);
    scene.lose_link(1, Duration::ZERO);
    scene.lose_link(2, Duration::ZERO);
    scene
}

fn plan(step: PlanStep) -> Plan {
    Plan {
        id: "p".to_owned(),
        kind: PlanKind::Failover,
        step,
        reason: "Test".to_owned(),
        from: None,
        to: None,
        holder: "term".to_owned(),
        overwrites: Vec::new(),
        w_before: 1,
        started_at: Time(Timestamp::UNIX_EPOCH),
    }
}
