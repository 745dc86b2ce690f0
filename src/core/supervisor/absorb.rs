//! Events into state. Nothing is decided here. Pure.

use super::{Mode, Slice, Supervisor};
use crate::api::status::RedisClusterStatus;
use crate::core::event::{
    CommandOutcome, DialOutcome, Effect, Event, Knock, ProbeOutcome, RoleCommand, Stored, WriteOutcome,
};
use crate::core::facts::{Mono, Now, PodFact, Ticket};
use crate::core::members::{Link, Member, Paused};
use crate::core::situation::Situation;

/// Pause before the object is read again after the API server did not answer: doubled up to this.
const READ_PAUSE_MAX: Mono = Mono::from_secs(2);

/// Pause before a server that refused a command gets another one.
const COMMAND_PAUSE: Mono = Mono::from_millis(200);

/// The same refusal is told this often at most.
const REFUSAL_REPEAT: Mono = Mono::from_secs(60);

impl Supervisor {
    pub(super) fn absorb(&mut self, now: Now, event: Event, effects: &mut Vec<Effect>) {
        let mono = now.mono;
        match event {
            Event::Leading { term } => self.lead(mono, term),
            Event::Lapsed => {
                self.stop_acting();
                if self.mode != Mode::Off {
                    self.mode = Mode::Watching;
                    self.tell_lapsed(effects);
                }
            }
            Event::Standby => {
                self.stop_acting();
                self.mode = Mode::Off;
                effects.extend(self.members.keys().map(|uid| Effect::HangUp { uid: uid.clone() }));
                self.members.values_mut().for_each(|member| *member = Member::new(member.pod.clone()));
            }
            Event::Stored(stored) => self.stored(*stored),
            Event::Desired(desired) => self.desired = Some(desired),
            Event::Pods(pods) => self.pods(mono, pods, effects),
            Event::Reported(report) => {
                // Somebody took the record out of the status: what is there now decides, not our memory.
                let vanishes = self.report.recorded && !report.recorded;
                self.wiped = self.wiped.or(vanishes.then_some(mono)).filter(|_| !report.recorded);
                self.report = report;
                self.look_for_the_record(mono);
            }
            Event::RouteSeen(seen) => {
                self.max_epoch = self.max_epoch.max(seen.as_ref().map_or(0, |route| route.epoch));
                self.routing.seen = seen.map_or(Slice::Absent, Slice::Says);
            }
            Event::ReadsSeen(seen) => {
                self.max_epoch = self.max_epoch.max(seen.as_ref().map_or(0, |reads| reads.epoch));
                self.reads.seen = Some(seen.unwrap_or_default());
            }
            Event::Dialed { uid, outcome } => self.dialed(mono, &uid, outcome, effects),
            Event::Knocked { uid, outcome } => self.knocked(mono, &uid, outcome, effects),
            Event::LinkLost { uid, link } => {
                if let Some(member) =
                    self.members.get_mut(&uid).filter(|member| member.link_id() == Some(link))
                {
                    member.link_lost(mono);
                }
                self.forget_unlisted(effects);
            }
            Event::Probed { uid, link, asked_at, outcome } => {
                self.probed(mono, &uid, link, asked_at, outcome);
            }
            Event::Replied { ticket, outcome } => self.replied(now, ticket, outcome, effects),
            Event::StatusWritten { ticket, outcome } => self.status_written(now, ticket, outcome, effects),
            Event::RouteWritten { ticket, outcome } => self.route_written(now, ticket, outcome, effects),
            Event::ReadsWritten { ticket, outcome } => self.reads_written(now, ticket, outcome, effects),
            Event::LeaseChecked { ticket, held } => self.lease_checked(mono, ticket, held),
            Event::PodConfirmed { ticket, ip } => self.pod_confirmed(ticket, ip),
            Event::Tick => {}
        }
        self.note_streams(now);
    }

    fn lead(&mut self, now: Mono, term: String) {
        let warm = self.mode == Mode::Watching;
        self.mode = Mode::Leading { term };
        self.stored = None;
        self.write = None;
        self.reading = false;
        self.read_at = now;
        self.lease = None;
        self.untouched = None;
        self.confirmed = None;
        self.routing.pending = None;
        self.reads.pending = None;
        self.routing.claimed = None;
        self.unsettled = false; // a new term claims anyway
        self.api_lost_since = None;
        self.gauges = None;
        if !warm {
            self.void_evidence(now);
            self.members.values_mut().for_each(|member| member.bad_since = None);
        }
    }

    fn stop_acting(&mut self) {
        self.write = None;
        self.reading = false;
        self.confirming = None;
        self.lease = None;
        self.routing.pending = None;
        self.reads.pending = None;
        self.definitive = false;
        self.held = None;
    }

    fn stored(&mut self, stored: Stored) {
        if self.write.is_some() || !matches!(self.mode, Mode::Leading { .. }) {
            return;
        }
        self.reading = false;
        self.read_failures = 0;
        self.api_lost_since = None;
        if stored.uid != self.uid {
            self.desired = None; // another object under the same name: not ours to touch
            return;
        }
        self.resource_version = stored.resource_version;
        self.keep(stored.status.unwrap_or_default());
    }

    /// This is what the API server has.
    pub(super) fn keep(&mut self, status: RedisClusterStatus) {
        let before = std::mem::replace(&mut self.record, status.supervision.clone().unwrap_or_default());
        if before.master != self.record.master {
            // Who streamed from another master is no witness of this one.
            self.members.values_mut().for_each(|member| member.streamed_at = None);
        }
        self.max_epoch = self.max_epoch.max(self.record.epoch);
        self.stored = Some(status);
    }

    fn pods(&mut self, now: Mono, pods: Vec<PodFact>, effects: &mut Vec<Effect>) {
        for member in self.members.values_mut() {
            let listed = pods.iter().any(|pod| pod.uid == member.pod.uid);
            if member.listed && !listed {
                member.unlisted_since = Some(now);
            }
            member.listed = listed;
        }
        for pod in pods {
            match self.members.get_mut(&pod.uid) {
                Some(member) => {
                    if member.pod.ip != pod.ip && member.pod.ip.is_some() {
                        // Another sandbox: whatever answered at the old address is over, and its end may never
                        // reach us.
                        member.moved(now);
                        effects.push(Effect::HangUp { uid: pod.uid.clone() });
                    }
                    member.unlisted_since = None;
                    member.pod = pod;
                }
                None => {
                    self.members.insert(pod.uid.clone(), Member::new(pod));
                }
            }
        }
        self.forget_unlisted(effects);
    }

    /// A pod that Kubernetes does not list is kept while it can still be heard or is part of the record: a
    /// process may outlive its pod.
    fn forget_unlisted(&mut self, effects: &mut Vec<Effect>) {
        let record = &self.record;
        let named = |uid: &str| {
            let plan = record.plan.as_ref();
            let processes = [
                record.master.as_ref(),
                plan.and_then(|plan| plan.from.as_ref()),
                plan.and_then(|plan| plan.to.as_ref()),
            ];
            processes.into_iter().flatten().any(|process| process.uid == uid)
        };
        self.members.retain(|uid, member| {
            let keep = member.listed || named(uid);
            if !keep {
                effects.push(Effect::HangUp { uid: uid.clone() });
            }
            keep
        });
    }

    fn dialed(&mut self, now: Mono, uid: &str, outcome: DialOutcome, effects: &mut Vec<Effect>) {
        let Some(member) = self.members.get_mut(uid) else {
            if matches!(outcome, DialOutcome::Connected { .. }) {
                effects.push(Effect::HangUp { uid: uid.to_owned() });
            }
            return;
        };
        if !matches!(member.link, Link::Dialing { .. }) {
            return; // an answer to a dial of an earlier life
        }
        match outcome {
            DialOutcome::Connected { link, asked_at, info } => member.connected(now, link, asked_at, *info),
            DialOutcome::Refused => {
                member.refused(now);
                member.dial_failed(now);
            }
            DialOutcome::Unroutable => {
                member.unroutable(now);
                member.dial_failed(now);
            }
            DialOutcome::Silent => {
                member.suspect(now);
                member.refused = None;
                member.unroutable_since = None;
                member.link = Link::Dialing { since: now, silent: true };
            }
            DialOutcome::Denied(why) => {
                member.suspect(now);
                member.refused = None;
                member.unroutable_since = None;
                member.denied = None;
                member.turned_away(now, why);
                member.dial_failed(now);
            }
            DialOutcome::Broken(_) => {
                member.suspect(now);
                member.dial_failed(now);
            }
        }
    }

    fn knocked(&mut self, now: Mono, uid: &str, outcome: Knock, effects: &mut Vec<Effect>) {
        let Some(member) = self.members.get_mut(uid) else { return };
        member.knock_pending = false;
        match outcome {
            // The way is open again, but the old connection may sleep in its retransmission back-off for a
            // minute: a new one asks sooner.
            Knock::Accepted if member.unroutable_since.is_some() && member.link_id().is_some() => {
                member.unroutable_since = None;
                member.hung_up(now);
                effects.push(Effect::HangUp { uid: uid.to_owned() });
            }
            Knock::Accepted => {}
            // The listener is gone while our connection is still open: the end of file will follow.
            Knock::Refused => member.refused(now),
            Knock::Unroutable => member.unroutable(now),
        }
    }

    fn probed(&mut self, now: Mono, uid: &str, link: u64, asked_at: Mono, outcome: ProbeOutcome) {
        let Some(member) = self.members.get_mut(uid).filter(|member| member.link_id() == Some(link)) else {
            return;
        };
        match outcome {
            ProbeOutcome::Answered(info) => member.answered(now, asked_at, *info),
            ProbeOutcome::Refused(why) => {
                member.asked.retain(|asked| *asked > asked_at);
                member.turned_away(now, why);
                member.sample = member.sample.take().map(|mut sample| {
                    sample.answered_at = now;
                    sample
                });
            }
        }
    }

    fn replied(&mut self, now: Now, ticket: Ticket, outcome: CommandOutcome, effects: &mut Vec<Effect>) {
        let Some(member) = self
            .members
            .values_mut()
            .find(|member| member.outstanding.as_ref().is_some_and(|command| command.ticket == ticket))
        else {
            return;
        };
        let Some(command) = member.outstanding.take() else { return };
        match outcome {
            CommandOutcome::Done(info) => {
                match command.command {
                    RoleCommand::Pause { .. } => {
                        member.paused = Some(Paused { at: now.mono, goal: info.master_offset, ended: false });
                    }
                    RoleCommand::Unpause => {
                        member.paused = member.paused.map(|paused| Paused { ended: true, ..paused });
                    }
                    RoleCommand::StepDown => member.paused = None,
                    RoleCommand::Serve => member.served_at = Some(now.mono),
                    RoleCommand::Follow { .. } => member.followed_at = Some(now.mono),
                    RoleCommand::Detach
                    | RoleCommand::Demote
                    | RoleCommand::Promote { .. }
                    | RoleCommand::CutClients
                    | RoleCommand::KillScript
                    | RoleCommand::SetWriteQuorum(_) => {}
                }
                // Replies come in order: this INFO is newer than any answer that is already here.
                let newest = member.sample.as_ref().map_or(Mono::ZERO, |sample| sample.asked_at);
                member.answered(now.mono, command.sent_at.max(newest), *info);
                let pod = member.pod.name.clone();
                self.tell_done(now, &pod, &command.command, effects);
            }
            CommandOutcome::Refused(why) => {
                member.read_after = now.mono;
                member.command_again_at = now.mono + COMMAND_PAUSE;
                let told = member.refusal_told_at.is_some_and(|at| now.mono < at + REFUSAL_REPEAT);
                if !told {
                    member.refusal_told_at = Some(now.mono);
                    let pod = member.pod.name.clone();
                    self.tell_refused(&pod, &command.command, &why, effects);
                }
            }
            // Nothing happened, and we may not act any more: the lease says so in a moment.
            CommandOutcome::NotSent => {}
            // It may have been carried out: what counts is what is read from now on.
            CommandOutcome::Lost(_) => member.read_after = now.mono,
        }
    }

    fn status_written(&mut self, now: Now, ticket: Ticket, outcome: WriteOutcome, effects: &mut Vec<Effect>) {
        let Some(write) = self.write.take_if(|write| write.ticket == ticket) else { return };
        match outcome {
            WriteOutcome::Written => {
                self.api_lost_since = None;
                let before = self.record.clone();
                self.keep(*write.status);
                self.unsettled &= self.record.epoch == before.epoch;
                self.tell_recorded(now, &before, &write.what, effects);
                self.note_step(now.mono);
                self.forget_unlisted(effects);
                self.look_for_the_record(now.mono);
            }
            WriteOutcome::Conflict | WriteOutcome::NotSent => {
                self.lease = None; // another one wrote: whether we still lead is read again before the next command
                self.read_again(now.mono);
            }
            WriteOutcome::Gone => self.desired = None,
            WriteOutcome::Unknown(_) => {
                self.api_lost_since.get_or_insert(now.mono);
                self.unsettled = true;
                self.read_again(now.mono);
            }
            WriteOutcome::Denied(why) => {
                self.tell_denied("the status of the RedisCluster", &why, effects);
                self.read_again(now.mono);
                self.read_at = now.mono + READ_PAUSE_MAX;
            }
        }
    }

    /// A write under way brings its own answer first.
    fn look_for_the_record(&mut self, now: Mono) {
        if self.wiped.is_some() && self.stored.is_some() && self.write.is_none() {
            self.wiped = None;
            self.read_again(now);
        }
    }

    fn read_again(&mut self, now: Mono) {
        self.stored = None;
        self.reading = false;
        let pause = Mono::from_millis(20) * 2_u32.saturating_pow(self.read_failures.min(7));
        self.read_failures = self.read_failures.saturating_add(1);
        self.read_at = now + pause.min(READ_PAUSE_MAX);
    }

    /// Which step of which plan the record shows, and since when.
    pub(super) fn note_step(&mut self, now: Mono) {
        let step = self.record.plan.as_ref().map(|plan| (plan.id.clone(), plan.step, self.record.epoch));
        let same = match (&self.step, &step) {
            (Some((id, step, _)), Some((new_id, new_step, _))) => id == new_id && step == new_step,
            (None, None) => true,
            _ => false,
        };
        if !same {
            let same_plan =
                matches!((&self.step, &step), (Some((id, ..)), Some((new_id, ..))) if id == new_id);
            self.step_since = now;
            if !same_plan {
                self.definitive =
                    self.definitive && step.as_ref().is_some_and(|(id, ..)| *id == self.story.plan);
            }
        }
        self.step = step;
    }

    fn lease_checked(&mut self, now: Mono, ticket: Ticket, held: bool) {
        if let Some((asked, confirmed)) = &mut self.lease
            && *asked == ticket
        {
            *confirmed = held;
            if !held {
                self.lease = None;
                self.lease_retry_at = now + Mono::from_millis(200);
            }
        }
    }

    fn pod_confirmed(&mut self, ticket: Ticket, ip: Option<std::net::IpAddr>) {
        let Some((_, uid, link, _)) = self.confirming.as_ref().filter(|(first, ..)| ticket >= *first) else {
            return;
        };
        let same = self.members.get(uid).is_some_and(|member| ip.is_some() && member.pod.ip == ip);
        if same {
            self.confirmed = Some((uid.clone(), *link));
            self.confirming = None;
        }
    }

    /// Remember who streams from the recorded master, and since when each pod is in sync.
    fn note_streams(&mut self, now: Now) {
        let Some(desired) = self.desired.clone() else { return };
        let situation = self.situation(now, &desired);
        let now = now.mono;
        let master = situation.master().and_then(|(_, member)| member);
        let master_ip = master.and_then(|member| member.pod.ip);
        let master_uid = master.map(|member| member.pod.uid.clone());
        let id = situation
            .well_master()
            .map(|(_, info)| info.replid.clone())
            .or_else(|| situation.current_id().map(str::to_owned));
        let states: Vec<(String, bool, bool)> = situation
            .members
            .values()
            .map(|member| {
                let streams = member.reading(now).is_some_and(|info| {
                    master_ip.is_some_and(|ip| Situation::streams_from(info, ip))
                        && id.as_deref() == Some(&info.replid)
                });
                (member.pod.uid.clone(), streams, situation.in_sync(member))
            })
            .collect();
        let master_is_well = situation.well_master().is_some();
        for (uid, streams, in_sync) in states {
            let Some(member) = self.members.get_mut(&uid) else { continue };
            if streams && Some(&uid) != master_uid.as_ref() {
                member.streamed_at = member.sample.as_ref().map(|sample| sample.answered_at);
            }
            if in_sync {
                member.in_sync_since.get_or_insert(now);
                member.out_of_sync_since = None;
            } else if master_is_well {
                member.in_sync_since = None;
                member.out_of_sync_since.get_or_insert(now);
            }
        }
    }
}
