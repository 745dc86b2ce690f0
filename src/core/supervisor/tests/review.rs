//! Faults in combination: what must hold whatever happens.

use std::time::Duration;

use super::stage::{MS, Stage};
use crate::api::status::PlanStep;
use crate::core::event::Event;
use crate::core::facts::Role;

const SECOND: Duration = Duration::from_secs(1);

fn finished(stage: &Stage, not: &str) -> bool {
    let record = stage.record();
    record.plan.is_none() && record.master.is_some_and(|master| master.pod != not)
}
