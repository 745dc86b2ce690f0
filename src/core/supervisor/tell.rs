//! What people are told, and when. Pure.

use super::Supervisor;
use crate::api::status::{PlanKind, PlanStep, Supervision};
use crate::core::advance::{Opened, Recorded};
use crate::core::event::{Effect, Measure, Notice, RoleCommand, StateGauges};
use crate::core::facts::{Desired, Mono, Now, RouteFact};
use crate::core::health::{Health, judge};
use crate::core::held::Held;

/// A hold is told when it begins, and then this often.
const REPEAT: Mono = Mono::from_secs(600);

impl Supervisor {
    pub(super) fn tell(
        &self,
        warning: bool,
        reason: &'static str,
        message: String,
        effects: &mut Vec<Effect>,
    ) {
        effects.push(Effect::Tell(Notice { warning, reason, message, epoch: self.record.epoch }));
    }

    /// The first bad sign of the master, and whether one is pending.
    pub(super) fn note_suspicion(&mut self, now: Now, desired: &Desired, effects: &mut Vec<Effect>) {
        let situation = self.situation(now, desired);
        let suspected = situation.plan().is_none()
            && situation.master().is_some_and(|(process, member)| {
                let health = judge(&situation, process);
                let signs = member.is_none_or(|member| member.bad_since.is_some());
                signs && matches!(health, Health::Suspect | Health::Dead(_))
            });
        if suspected && self.suspected_since.is_none() && self.stored.is_some() {
            let pod = self.record.master.as_ref().map(|master| master.pod.clone()).unwrap_or_default();
            self.tell(
                false,
                "MasterSuspected",
                format!("{pod} does not answer as the master should"),
                effects,
            );
        }
        self.suspected_since = suspected.then(|| self.suspected_since.unwrap_or(now.mono));
    }

    /// The lease ran out under our hands. Nobody can read it in the status now: the log and the metrics say it.
    pub(super) fn tell_lapsed(&mut self, effects: &mut Vec<Effect>) {
        let message = "the lease could not be renewed, most likely because the API server does not answer: nothing \
                       is changed, the servers are left as they are and watched, and a dead master is replaced as \
                       soon as a decision can be recorded again";
        self.tell(true, Held::ControlPlaneLost.as_str(), message.to_owned(), effects);
        self.held = Some((Held::ControlPlaneLost, message.to_owned()));
        let held = Some(Held::ControlPlaneLost.as_str());
        self.gauges = self.gauges.take().map(|gauges| StateGauges { held, ..gauges });
        effects.extend(self.gauges.clone().map(|gauges| Effect::Measure(Measure::State(gauges))));
    }

    pub(super) fn set_held(&mut self, now: Now, held: Option<(Held, String)>, effects: &mut Vec<Effect>) {
        if let Some((reason, message)) = &held {
            let told = self.held_told.is_some_and(|(said, at)| said == *reason && now.mono < at + REPEAT);
            if !told && self.is_leading() {
                self.held_told = Some((*reason, now.mono));
                self.tell(true, reason.as_str(), message.clone(), effects);
            }
        } else if self.held.is_none() {
            // Not forgotten at once: a hold that flickers is one hold.
            self.held_told = self.held_told.filter(|(_, at)| now.mono < *at + Mono::from_secs(60));
        }
        self.held = held;
    }

    /// A record is on file.
    pub(super) fn tell_recorded(
        &mut self,
        now: Now,
        before: &Supervision,
        what: &Recorded,
        effects: &mut Vec<Effect>,
    ) {
        let plan = self.record.plan.clone().or_else(|| before.plan.clone());
        let from = plan
            .as_ref()
            .and_then(|plan| plan.from.as_ref())
            .map(|from| from.pod.clone())
            .unwrap_or_default();
        let to = plan.as_ref().and_then(|plan| plan.to.as_ref()).map(|to| to.pod.clone()).unwrap_or_default();
        let reason = plan.as_ref().map(|plan| plan.reason.clone()).unwrap_or_default();
        match what {
            Recorded::Opened(Opened { definitive, offset, why }) => {
                self.story.recorded = Some(now.mono);
                match self.plan_kind() {
                    Some(PlanKind::Bootstrap) => {
                        let message = format!("{to} becomes the first master");
                        self.tell(false, "BootstrapStarted", message, effects);
                    }
                    Some(PlanKind::Recover) if reason == "DataLost" => {
                        let message = format!(
                            "every pod came back empty: the data is gone. {to} becomes the master of an empty \
                             data set; use spec.persistence if restarts of all pods must not lose data"
                        );
                        self.tell(true, "DataLost", message, effects);
                    }
                    Some(PlanKind::Recover) => {
                        let why = why.as_deref().unwrap_or("its own data is all there is");
                        let message = format!("{to} becomes the master: {why}");
                        self.tell(true, "RecoveryStarted", message, effects);
                    }
                    Some(PlanKind::Switchover) => {
                        let message = format!("{to} takes the place of the master {from} ({reason})");
                        self.tell(false, "SwitchoverStarted", message, effects);
                    }
                    Some(PlanKind::Failover) | None => {
                        let certainty = if *definitive { "certainly" } else { "presumably" };
                        let message =
                            format!("the master {from} is {certainty} dead ({reason}): replacing it");
                        self.tell(true, "FailoverStarted", message, effects);
                    }
                }
                if let Some(offset) = offset {
                    self.tell_chosen(now, &to, *offset, effects);
                }
            }
            Recorded::Claimed => {
                if let Some(plan) = self.record.plan.clone().filter(|plan| plan.step < PlanStep::Promoted) {
                    let request = self.request_for(plan.kind, &plan.reason);
                    self.carried_out = self.carried_out.take().or(request);
                    let message =
                        format!("carrying on an unfinished {:?} at step {:?}", plan.kind, plan.step);
                    self.tell(false, "PlanTakenOver", message, effects);
                }
            }
            Recorded::Revoked => {
                let message = format!(
                    "no replica within reach follows {from} any more; waiting until its write lease is over"
                );
                self.tell(false, "OldMasterRevoked", message, effects);
            }
            Recorded::Chosen { offset } => self.tell_chosen(now, &to, *offset, effects),
            Recorded::ChooseAgain => {
                let message =
                    "the chosen successor ended before it was on record as the master: choosing again"
                        .to_owned();
                self.tell(true, "SuccessorLost", message, effects);
            }
            Recorded::Promoted => {
                self.story.on_record = Some(now.mono);
                self.tell(false, "MasterPromoted", format!("{to} is the master"), effects);
                if plan.as_ref().is_some_and(|plan| plan.to != plan.from) {
                    self.failed_switches = 0;
                }
                self.switch_ended(now, effects);
            }
            Recorded::FalseAlarm => {
                let message = format!("{from} answers as a well master: the failover is called off");
                self.tell(false, "FalseAlarm", message, effects);
                if plan.as_ref().is_some_and(|plan| plan.kind == PlanKind::Switchover) {
                    self.switch_failed(now, effects);
                }
                if let Some(plan) = before.plan.as_ref() {
                    effects.push(Effect::Measure(Measure::FalseAlarm { kind: plan.kind }));
                }
            }
            Recorded::Abandoned => {
                let message = "the situation changed before anybody was promoted: deciding anew".to_owned();
                self.tell(false, "PlanAbandoned", message, effects);
            }
            Recorded::SwitchGivenUp { why } => {
                let message = format!("{from} stays the master, nobody was demoted: {why}");
                self.tell(true, "SwitchoverGivenUp", message, effects);
                self.switch_failed(now, effects);
            }
            Recorded::Undone => {
                let message = format!(
                    "the successor did not receive everything that {from} had: {from} is promoted again"
                );
                self.tell(true, "SwitchoverUndone", message, effects);
                self.switch_failed(now, effects);
            }
            Recorded::SwitchBroken => {
                let message = format!("{from} was lost on the way to {to}: going on as a failover");
                self.tell(true, "SwitchoverBroken", message, effects);
            }
            Recorded::Adopted { pod, from } => {
                let message =
                    format!("somebody made {pod} the master instead of {from}: it is on record now");
                self.tell(true, "ExternalFailoverAdopted", message, effects);
            }
            Recorded::Closed => self.tell_closed(effects),
            Recorded::Admitted { pod } => {
                let message = format!(
                    "{pod} came with data that is not in the recorded history, from a volume of before; it is replaced \
                     by the master's"
                );
                self.tell(true, "StaleDataReplaced", message, effects);
            }
            Recorded::Kept => {}
        }
    }

    fn tell_chosen(&mut self, now: Now, to: &str, offset: i64, effects: &mut Vec<Effect>) {
        self.story.chosen = Some(now.mono);
        self.story.chosen_offset = Some(offset);
        let message = format!("{to} has the newest data: offset {offset}");
        self.tell(false, "ReplicaSelected", message, effects);
    }

    fn tell_closed(&mut self, effects: &mut Vec<Effect>) {
        let Some(last) = self.stored.as_ref().and_then(|stored| stored.last_failover.clone()) else { return };
        let mut message = format!("{} is the master", last.to);
        if let Some(stages) = last.stages {
            let stage = |name: &str, value: Option<u64>| {
                value.map(|ms| format!(" {name} {ms} ms")).unwrap_or_default()
            };
            message = format!(
                "{message}; since the first sign:{}{}{}{}{}{}",
                stage("confirmed", stages.confirmed),
                stage("recorded", stages.recorded),
                stage("chosen", stages.chosen),
                stage("promoted", stages.promoted),
                stage("routed", stages.routed),
                stage("healed", stages.healed),
            );
        }
        let reason = match last.kind {
            PlanKind::Bootstrap => "BootstrapCompleted",
            PlanKind::Switchover => "SwitchoverCompleted",
            PlanKind::Failover => "FailoverCompleted",
            PlanKind::Recover => "RecoveryCompleted",
        };
        self.tell(false, reason, message, effects);
        effects.push(Effect::Measure(Measure::Finished(Box::new(last))));
    }

    pub(super) fn tell_routed(&mut self, now: Now, written: &RouteFact, effects: &mut Vec<Effect>) {
        let leads_to_master =
            self.record.master.as_ref().is_some_and(|master| written.uid.as_deref() == Some(&master.uid));
        if leads_to_master && self.record.plan.is_some() {
            self.story.routed = Some(now.mono);
            let ip = written.ip.clone().unwrap_or_default();
            self.tell(false, "Rerouted", format!("the master Service leads to {ip}"), effects);
        }
    }

    pub(super) fn tell_done(
        &mut self,
        now: Now,
        pod: &str,
        command: &RoleCommand,
        effects: &mut Vec<Effect>,
    ) {
        match command {
            RoleCommand::Promote { .. } => self.story.promoted = Some(now.mono),
            RoleCommand::Follow { cut_clients, .. } => {
                if *cut_clients {
                    let message =
                        format!("{pod} was a master that is not on record: it follows the recorded one");
                    self.tell(true, "OldMasterDemoted", message, effects);
                } else if self.record.plan.is_some() {
                    self.story.healed = Some(now.mono);
                }
            }
            RoleCommand::Demote => {
                self.tell(false, "OldMasterDemoted", format!("{pod} takes no more writes"), effects);
            }
            RoleCommand::Detach
            | RoleCommand::Serve
            | RoleCommand::SetWriteQuorum(_)
            | RoleCommand::CutClients
            | RoleCommand::Pause { .. }
            | RoleCommand::Unpause
            | RoleCommand::StepDown
            | RoleCommand::KillScript => {}
        }
    }

    pub(super) fn tell_refused(
        &self,
        pod: &str,
        command: &RoleCommand,
        why: &str,
        effects: &mut Vec<Effect>,
    ) {
        let message = format!("{pod} refused {command:?}: {why}; it is asked again");
        self.tell(true, "CommandRefused", message, effects);
    }

    pub(super) fn tell_denied(&self, object: &str, why: &str, effects: &mut Vec<Effect>) {
        let message = format!("the API server does not let the operator write {object}: {why}");
        self.tell(true, "WriteDenied", message, effects);
    }
}
