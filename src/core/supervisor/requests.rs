//! What people ask for by annotation: a planned switch. Pure.

use k8s_openapi::jiff::Timestamp;

use super::Supervisor;
use crate::api::status::PlanKind;
use crate::core::decide::is_requested;
use crate::core::event::Effect;
use crate::core::facts::{Desired, Mono, Now};
use crate::core::switch;

/// Pause before the removal of an answered request is asked for again.
const CLEAR_AGAIN: Mono = Mono::from_secs(5);

/// Pause before a switch of our own decision is tried again: doubled each time, up to the second.
const SWITCH_AGAIN: Mono = Mono::from_secs(10);
const SWITCH_AGAIN_MAX: Mono = Mono::from_secs(600);

impl Supervisor {
    /// The request that waits for an answer.
    pub(super) fn request<'a>(&'a self, desired: &'a Desired) -> Option<&'a str> {
        let wanted = desired.switchover.as_deref()?;
        let answered = self.answered.as_ref().is_some_and(|(answered, _)| answered == wanted);
        (!answered).then_some(wanted)
    }

    /// Seconds since the last switch on record.
    pub(super) fn last_switch_ago(&self, wall: Timestamp) -> Option<i64> {
        let last = self.stored.as_ref()?.last_failover.as_ref()?;
        (last.kind == PlanKind::Switchover).then(|| wall.as_second().saturating_sub(last.at.0.as_second()))
    }

    /// Refuse what is not allowed, and take away what was answered.
    pub(super) fn answer_requests(&mut self, now: Now, desired: &Desired, effects: &mut Vec<Effect>) {
        let Some(wanted) = desired.switchover.clone() else {
            self.answered = None;
            return;
        };
        if let Some((answered, at)) = &self.answered
            && *answered == wanted
        {
            if now.mono >= *at + CLEAR_AGAIN {
                self.clear_request(now, wanted, effects);
            }
            return;
        }
        let situation = self.situation(now, desired);
        // While anything else is going on, or nobody knows how things are, it waits.
        if self.stored.is_none() || situation.plan().is_some() || situation.well_master().is_none() {
            return;
        }
        match switch::requested(&situation, &wanted) {
            Ok(Some(_)) => {}
            Ok(None) => {
                let message = format!("{wanted} is the master already");
                self.tell(false, "SwitchoverNotNeeded", message, effects);
                self.clear_request(now, wanted, effects);
            }
            Err(why) => {
                let message = format!("the master is not moved to {wanted}: {why}");
                self.tell(true, "SwitchoverRefused", message, effects);
                self.clear_request(now, wanted, effects);
            }
        }
    }

    /// The request that a plan of this kind and reason carries out.
    pub(super) fn request_for(&self, kind: PlanKind, reason: &str) -> Option<String> {
        self.desired.as_ref()?.switchover.clone().filter(|_| is_requested(kind, reason))
    }

    /// A switch came to its end, whatever that is: the request for it is answered. What was asked for meanwhile is not.
    pub(super) fn switch_ended(&mut self, now: Now, effects: &mut Vec<Effect>) {
        if let Some(wanted) = self.carried_out.take() {
            self.clear_request(now, wanted, effects);
        }
    }

    /// A switch did not come about: the next one of our own decision waits, longer each time.
    pub(super) fn switch_failed(&mut self, now: Now, effects: &mut Vec<Effect>) {
        let pause = SWITCH_AGAIN * 2_u32.saturating_pow(self.failed_switches.min(6));
        self.failed_switches = self.failed_switches.saturating_add(1);
        self.switch_not_before = now.mono + pause.min(SWITCH_AGAIN_MAX);
        self.switch_ended(now, effects);
    }

    fn clear_request(&mut self, now: Now, value: String, effects: &mut Vec<Effect>) {
        self.answered = Some((value.clone(), now.mono));
        effects.push(Effect::ClearSwitchover { value });
    }
}
