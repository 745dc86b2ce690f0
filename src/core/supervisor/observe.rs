//! When to ask whom. Pure.
//!
//! One connection a pod, INFO in a steady rhythm, faster while something is wrong. A late probe stays
//! outstanding; at most two are, besides the last look, so that a demotion is not queued behind hundreds.

use std::time::Duration;

use super::{Mode, Supervisor};
use crate::api::status::{PlanKind, PlanStep};
use crate::core::event::Effect;
use crate::core::facts::Mono;
use crate::core::members::{Link, Member, PROBE_DEADLINE};

/// Rhythm of a well master.
const MASTER_RHYTHM: Duration = Duration::from_millis(100);
/// Rhythm of a well replica.
const REPLICA_RHYTHM: Duration = Duration::from_millis(500);
/// Rhythm of everybody in the first moments of a suspicion or step, when milliseconds count.
const HOT_RHYTHM: Duration = Duration::from_millis(4);
/// How long those first moments last.
const HOT_FOR: Duration = Duration::from_millis(150);
/// As long as a switch can last.
const SWITCHING_FOR: Duration = Duration::from_secs(2);
/// Unanswered probes on one connection.
const OUTSTANDING: usize = 2;
/// Rhythm of looking at the clock.
const WITHOUT_PROBES: Duration = Duration::from_millis(500);
/// Pause between bare connects to a silent server.
const KNOCK_PAUSE: Duration = Duration::from_millis(500);

impl Supervisor {
    pub(super) fn observe(&mut self, now: Mono, effects: &mut Vec<Effect>) {
        for uid in self.members.keys().cloned().collect::<Vec<_>>() {
            let rhythm = self.rhythm(now, &uid);
            let Some(member) = self.members.get_mut(&uid) else { continue };
            watch_deadline(member, now);
            match member.link {
                Link::Closed => dial(member, now, effects),
                Link::Dialing { .. } => {}
                Link::Open { id } => {
                    if now >= member.last_asked + rhythm && member.asked.len() < OUTSTANDING {
                        ask(member, id, now, effects);
                    }
                    knock(member, now, effects);
                }
            }
        }
    }

    /// Ask this pod now, whatever its rhythm: the last look.
    pub(super) fn look(&mut self, now: Mono, uid: &str, effects: &mut Vec<Effect>) {
        let Some(member) = self.members.get_mut(uid) else { return };
        match member.link {
            Link::Open { id } if member.asked.last().is_none_or(|asked| *asked < now) => {
                if member.asked.len() <= OUTSTANDING {
                    ask(member, id, now, effects);
                }
            }
            Link::Closed => {
                member.redial_at = member.redial_at.min(now);
                dial(member, now, effects);
            }
            Link::Open { .. } | Link::Dialing { .. } => {}
        }
    }

    fn rhythm(&self, now: Mono, uid: &str) -> Duration {
        let is_master = self.record.master.as_ref().is_some_and(|master| master.uid == uid);
        let normal = if is_master { MASTER_RHYTHM } else { REPLICA_RHYTHM };
        let Some(since) = self.trouble_since() else { return normal };
        // Clients wait while a switch is under way, and it is given up after two seconds.
        let switching = self
            .record
            .plan
            .as_ref()
            .is_some_and(|plan| plan.kind == PlanKind::Switchover && plan.step < PlanStep::Promoted);
        if switching && now.saturating_sub(self.step_since) < SWITCHING_FOR {
            return HOT_RHYTHM;
        }
        if now.saturating_sub(since) < HOT_FOR { HOT_RHYTHM } else { normal / 4 }
    }

    /// Since when something about the master or the plan, or lately about a replica, needs a closer look.
    fn trouble_since(&self) -> Option<Mono> {
        let master = self.record.master.as_ref().and_then(|master| self.members.get(&master.uid));
        let suspicion = master.and_then(|member| member.bad_since);
        let plan = self.record.plan.as_ref().map(|_| self.step_since);
        let starting = self.record.master.is_none().then_some(Mono::ZERO);
        let lagging = self
            .members
            .values()
            .filter(|member| member.listed)
            .filter_map(|member| member.out_of_sync_since)
            .max();
        [suspicion, plan, starting, lagging].into_iter().flatten().max()
    }

    /// The earliest moment at which time alone changes something.
    pub(super) fn next_due(&self, now: Mono) -> Option<Mono> {
        if self.mode == Mode::Off {
            return None;
        }
        let members = self.members.iter().filter_map(|(uid, member)| self.member_due(now, uid, member));
        let leading = matches!(self.mode, Mode::Leading { .. });
        let reading = (leading && self.stored.is_none() && !self.reading && self.desired.is_some())
            .then_some(self.read_at);
        let lease =
            (leading && self.lease.is_none() && self.record.plan.is_some()).then_some(self.lease_retry_at);
        let routing = (leading && self.routing.retry_at > now).then_some(self.routing.retry_at);
        let reads = (leading && self.reads.not_before > now).then_some(self.reads.not_before);
        let publish = (leading && self.publish_at > now).then_some(self.publish_at);
        // Where nobody can be asked, time alone still changes what is true.
        let time = leading.then_some(now + WITHOUT_PROBES);
        members
            .chain(time)
            .chain(reading)
            .chain(lease)
            .chain(routing)
            .chain(reads)
            .chain(publish)
            .min()
            .map(|due| due.max(now + Duration::from_millis(1)))
    }

    fn member_due(&self, now: Mono, uid: &str, member: &Member) -> Option<Mono> {
        match member.link {
            Link::Closed => (member.listed && member.pod.ip.is_some()).then_some(member.redial_at),
            Link::Dialing { .. } => None,
            Link::Open { .. } => {
                let rhythm = self.rhythm(now, uid);
                let ask = (member.asked.len() < OUTSTANDING).then_some(member.last_asked + rhythm);
                let late =
                    member.asked.first().map(|asked| *asked + PROBE_DEADLINE).filter(|late| *late > now);
                let knock = member.bad_since.map(|_| member.knocked_at + KNOCK_PAUSE);
                [ask, late, knock].into_iter().flatten().min()
            }
        }
    }
}

/// A probe that passes its deadline is a bad sign. So is silence.
fn watch_deadline(member: &mut Member, now: Mono) {
    if member.asked.first().is_some_and(|asked| now.saturating_sub(*asked) > PROBE_DEADLINE) {
        member.suspect(now);
    }
}

fn dial(member: &mut Member, now: Mono, effects: &mut Vec<Effect>) {
    let Some(ip) = member.pod.ip.filter(|_| member.listed && now >= member.redial_at) else { return };
    member.link = Link::Dialing { since: now, silent: false };
    effects.push(Effect::Dial { uid: member.pod.uid.clone(), ip });
}

fn ask(member: &mut Member, link: u64, now: Mono, effects: &mut Vec<Effect>) {
    member.asked.push(now);
    member.last_asked = now;
    effects.push(Effect::Probe { uid: member.pod.uid.clone(), link });
}

/// While an open connection is silent, a bare connect tells "hung" from "no route".
fn knock(member: &mut Member, now: Mono, effects: &mut Vec<Effect>) {
    let silent = member.asked.first().is_some_and(|asked| now.saturating_sub(*asked) > PROBE_DEADLINE);
    if !silent || member.knock_pending || now < member.knocked_at + KNOCK_PAUSE {
        return;
    }
    let Some(ip) = member.pod.ip else { return };
    member.knock_pending = true;
    member.knocked_at = now;
    effects.push(Effect::Knock { uid: member.pod.uid.clone(), ip });
}
