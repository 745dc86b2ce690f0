//! From a decision to effects. Pure.
//!
//! Order of safety: nothing without a known record; nothing without a claim of this lease term; no role command
//! of a plan before the plan is on record and the lease was read live.

use super::{Mode, PendingWrite, Supervisor};
use crate::api::status::{PlanKind, PlanStep, RedisClusterStatus, Supervision};
use crate::core::advance::{Act, Opened, Recorded, advance};
use crate::core::decide::{Decision, decide};
use crate::core::event::{Effect, Expect, Measure, RoleCommand};
use crate::core::facts::{Desired, Mono, Now};
use crate::core::heal;
use crate::core::health::{Death, Health, judge};
use crate::core::held::Held;
use crate::core::mechanism::{Mechanism, on};
use crate::core::members::Outstanding;
use crate::core::plan::{self, Author};
use crate::core::story::Story;

/// Pause before a pod is read live again.
const CONFIRM_PAUSE: Mono = Mono::from_secs(1);

/// Pause before a pod is deleted again.
const DELETE_PAUSE: Mono = Mono::from_secs(60);

impl Supervisor {
    pub(super) fn act(&mut self, now: Now, effects: &mut Vec<Effect>) {
        let Some(desired) = self.desired.clone() else {
            self.publish(now, effects);
            return;
        };
        if self.stored.is_none() && self.write.is_none() {
            self.read_object(now.mono, effects);
        }
        self.note_step(now.mono);
        self.answer_requests(now, &desired, effects);
        let (rule, decision) = decide(&self.situation(now, &desired));
        self.rule = rule;
        let may_act = self.stored.is_some() && self.write.is_none();
        let mut acts = Vec::new();
        let mut held = None;
        match decision {
            Decision::Wait(_) => {}
            Decision::Hold(reason, message) => held = Some((reason, message)),
            Decision::Open(draft, death) => {
                if may_act {
                    self.open(now, &draft, &death, effects);
                }
            }
            Decision::Advance => {
                if may_act {
                    (acts, held) = self.carry_on(now, &desired);
                } else {
                    held.clone_from(&self.held);
                }
            }
            Decision::Do(act, said) => {
                held = said;
                if may_act {
                    acts.push(*act);
                }
            }
            Decision::Heal(said) => {
                held = said;
                if may_act {
                    // The answer to the write is a stage of the story: it is waited for.
                    let routed = self.is_routed() && self.routing.pending.is_none();
                    acts = heal::heal(&self.situation(now, &desired), routed);
                }
            }
        }
        self.confirm_replacement(now, &desired, effects);
        self.note_suspicion(now, &desired, effects);
        self.set_held(now, held, effects);
        self.perform(now, acts, effects);
        self.steer(now, &desired, effects);
        self.steer_reads(now, &desired, effects);
        self.evict(now, &desired, effects);
        self.label(now, &desired, effects);
        self.publish(now, effects);
    }

    fn read_object(&mut self, now: Mono, effects: &mut Vec<Effect>) {
        if !self.reading && now >= self.read_at {
            self.reading = true;
            effects.push(Effect::ReadObject);
        }
    }

    pub(super) fn author_epoch(&self) -> u64 {
        self.max_epoch.max(self.record.epoch) + 1
    }

    pub(super) fn is_claimed(&self) -> bool {
        if !on(Mechanism::ClaimByEachTerm) {
            return true;
        }
        !self.unsettled
            && self.record.holder.as_deref() == self.term()
            && self.record.plan.as_ref().is_none_or(|plan| Some(plan.holder.as_str()) == self.term())
    }

    /// Record a new plan, and read the lease beside it.
    fn open(&mut self, now: Now, draft: &plan::Draft, death: &Death, effects: &mut Vec<Effect>) {
        let Some(term) = self.term().map(str::to_owned) else { return };
        let author = Author { term: &term, next_epoch: self.author_epoch() };
        let profile = self.desired.as_ref().map(|desired| desired.profile).unwrap_or_default();
        let next = plan::open(&self.record, &author, draft, profile, now.wall);
        // A plan whose promotion is on record was finished in all but healing.
        if self.record.plan.as_ref().is_some_and(|plan| plan.step == PlanStep::Promoted) {
            let finished = self.conclude(now).map(|last| Effect::Measure(Measure::Finished(Box::new(last))));
            effects.extend(finished);
        }
        // A switch begins with a master that is well.
        let definitive = matches!(death, Death::Definitive(_)) && draft.kind != PlanKind::Switchover;
        self.definitive = definitive;
        self.untouched = next.plan.as_ref().map(|plan| plan.id.clone());
        self.carried_out = self.request_for(draft.kind, draft.reason);
        self.story = Story {
            plan: next.plan.as_ref().map(|plan| plan.id.clone()).unwrap_or_default(),
            // A switch begins with the decision; there was nothing wrong before.
            first_sign: self
                .first_sign(draft.from.as_ref().map(|from| from.uid.as_str()))
                .filter(|_| draft.kind != PlanKind::Switchover)
                .or(Some(now.mono)),
            confirmed: Some(now.mono),
            sampled_offset: draft.from.as_ref().and_then(|from| self.sampled_offset(from)),
            ..Story::default()
        };
        self.check_lease(effects);
        let opened = Opened { definitive, offset: draft.offset, why: draft.why.clone() };
        self.write(now, &next, Recorded::Opened(opened), effects);
    }

    fn first_sign(&self, uid: Option<&str>) -> Option<Mono> {
        let member = self.members.get(uid?)?;
        member.bad_since.or(member.predecessor_bad_since)
    }

    /// The old master's own offset, if its last answer was that process'.
    fn sampled_offset(&self, from: &crate::api::status::ProcessRef) -> Option<i64> {
        let sample = self.members.get(&from.uid)?.sample.as_ref()?;
        (sample.info.run_id == from.run_id).then_some(sample.info.master_offset)
    }

    /// What the open plan needs, once it is ours and the lease was read live.
    fn carry_on(&mut self, now: Now, desired: &Desired) -> (Vec<Act>, Option<(Held, String)>) {
        let (Some(plan), Some(term)) = (self.record.plan.clone(), self.term().map(str::to_owned)) else {
            return (Vec::new(), None);
        };
        if !self.is_claimed() {
            let claim =
                self.claim().map(|next| Act::Record { next: Box::new(next), what: Recorded::Claimed });
            return (claim.into_iter().collect(), None);
        }
        let author = Author { term: &term, next_epoch: self.author_epoch() };
        let situation = self.situation(now, desired);
        // Certainty found later than the plan counts as well.
        let certain = plan.from.as_ref().filter(|_| plan.step < PlanStep::Chosen).is_some_and(|from| {
            matches!(judge(&situation, from), Health::Dead(Death::Definitive(_)) | Health::Demoted)
        });
        let next = advance(&situation, &plan, &author);
        self.definitive |= certain;
        (next.acts, next.held)
    }

    pub(super) fn lease_is_checked(&self) -> bool {
        self.lease.as_ref().is_some_and(|(_, held)| *held)
    }

    pub(super) fn check_lease(&mut self, effects: &mut Vec<Effect>) {
        let ticket = self.ticket();
        self.lease = Some((ticket, false));
        effects.push(Effect::CheckLease { ticket });
    }

    /// Carry out acts: claims first, then at most one record, and commands to idle pods.
    fn perform(&mut self, now: Now, acts: Vec<Act>, effects: &mut Vec<Effect>) {
        if acts.is_empty() {
            return;
        }
        if self.lease.is_none() && now.mono >= self.lease_retry_at {
            self.check_lease(effects);
        }
        let claimed = self.is_claimed();
        let only_looks = acts.iter().all(|act| matches!(act, Act::Look { .. }));
        let records = acts.iter().any(|act| matches!(act, Act::Record { .. }));
        if !claimed && !records && !only_looks {
            if let Some(next) = self.claim() {
                self.write(now, &next, Recorded::Claimed, effects);
            }
            return;
        }
        for act in acts {
            match act {
                Act::Look { uid } => self.look(now.mono, &uid, effects),
                Act::Command { uid, command } if claimed && self.lease_is_checked() => {
                    self.command(now.mono, &uid, command, effects);
                }
                Act::DeletePod { uid } if claimed && self.lease_is_checked() => {
                    self.delete_pod(now.mono, &uid, effects);
                }
                Act::Command { .. } | Act::DeletePod { .. } => {}
                Act::YieldLease => self.yield_lease(effects),
                Act::Record { next, what } => {
                    let next = if claimed { *next } else { self.claim_within(*next) };
                    self.write(now, &next, what, effects);
                }
            }
        }
    }

    pub(super) fn claim(&self) -> Option<Supervision> {
        let author = Author { term: self.term()?, next_epoch: self.author_epoch() };
        Some(plan::claim(&self.record, &author))
    }

    fn claim_within(&self, next: Supervision) -> Supervision {
        match self.term() {
            Some(term) => plan::claim(&next, &Author { term, next_epoch: self.author_epoch() }),
            None => next,
        }
    }

    /// It hangs, and what it hinders cannot go on: Kubernetes ends it and makes another one.
    fn delete_pod(&mut self, now: Mono, uid: &str, effects: &mut Vec<Effect>) {
        let Some(member) = self.members.get_mut(uid) else { return };
        if member.deleted_at.is_some_and(|at| now < at + DELETE_PAUSE) {
            return;
        }
        member.deleted_at = Some(now);
        let pod = member.pod.name.clone();
        let message = format!(
            "{pod} has hung for a minute and is in the way of the master's place: its pod is deleted"
        );
        self.tell(true, "HungPodDeleted", message, effects);
        effects.push(Effect::DeletePod { pod, uid: uid.to_owned() });
    }

    /// Once for a plan: two operators that both do not reach it must not hand the lease to and fro.
    fn yield_lease(&mut self, effects: &mut Vec<Effect>) {
        let plan = self.record.plan.as_ref().map(|plan| plan.id.clone());
        if plan.is_none() || self.yielded == plan {
            return;
        }
        self.yielded = plan;
        let message =
            "this operator does not reach a pod on which the open plan depends: another one may try";
        self.tell(true, "LeaseHandedOver", message.to_owned(), effects);
        effects.push(Effect::YieldLease);
    }

    pub(super) fn command(&mut self, now: Mono, uid: &str, command: RoleCommand, effects: &mut Vec<Effect>) {
        let ticket = self.ticket();
        let Some(member) = self.members.get_mut(uid) else { return };
        let idle = member.outstanding.is_none() && now >= member.command_again_at;
        let Some(link) = member.link_id().filter(|_| idle) else { return };
        if !matches!(command, RoleCommand::Pause { .. } | RoleCommand::Unpause) {
            self.untouched = None;
        }
        member.outstanding = Some(Outstanding { ticket, command: command.clone(), sent_at: now });
        effects.push(Effect::Command { ticket, uid: uid.to_owned(), link, command });
    }

    /// Compare-and-swap of the whole status around this record.
    pub(super) fn write(&mut self, now: Now, next: &Supervision, what: Recorded, effects: &mut Vec<Effect>) {
        let Some(stored) = self.stored.as_ref().filter(|_| self.write.is_none()) else { return };
        let expect = if stored.supervision.is_some() {
            let plan = self.record.plan.as_ref().map(|plan| plan.id.clone());
            Expect::At { uid: self.uid.clone(), epoch: self.record.epoch, plan }
        } else {
            Expect::First { uid: self.uid.clone(), resource_version: self.resource_version.clone() }
        };
        let mut status: RedisClusterStatus = self.compose(now, next);
        if matches!(what, Recorded::Closed) {
            status.last_failover = self.conclude(now);
        }
        self.max_epoch = self.max_epoch.max(next.epoch);
        let ticket = self.ticket();
        let status = Box::new(status);
        effects.push(Effect::WriteStatus { ticket, expect, status: status.clone() });
        if !on(Mechanism::PlanBeforeCommand) {
            self.keep(*status);
            return;
        }
        self.write = Some(PendingWrite { ticket, status, what });
    }

    /// The recorded master's pod runs another process: read the pod live before that counts as a death.
    fn confirm_replacement(&mut self, now: Now, desired: &Desired, effects: &mut Vec<Effect>) {
        let situation = self.situation(now, desired);
        let now = now.mono;
        let Some((master, Some(member))) = situation.master() else { return };
        let (Some(process), Some(link)) = (member.process(), member.link_id()) else { return };
        if process.run_id == master.run_id || situation.replaced_confirmed || !member.listed {
            return;
        }
        let asked =
            self.confirming.as_ref().filter(|(_, uid, asked, _)| *uid == process.uid && *asked == link);
        let first = asked.map(|(first, ..)| *first);
        // A read that failed brings no answer.
        if asked.is_some_and(|(.., at)| now < *at + CONFIRM_PAUSE) {
            return;
        }
        let ticket = self.ticket();
        self.confirming = Some((first.unwrap_or(ticket), process.uid.clone(), link, now));
        effects.push(Effect::ConfirmPod { ticket, pod: process.pod, uid: process.uid });
    }

    /// A plan is open whose promotion is not on record.
    pub(super) fn is_changing(&self) -> bool {
        self.record.plan.as_ref().is_some_and(|plan| plan.step < PlanStep::Promoted)
    }

    /// Kind of the open plan, for people.
    pub(super) fn plan_kind(&self) -> Option<PlanKind> {
        self.record.plan.as_ref().map(|plan| plan.kind)
    }

    pub(super) fn is_leading(&self) -> bool {
        matches!(self.mode, Mode::Leading { .. })
    }
}
