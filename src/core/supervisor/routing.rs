//! Where the two Services lead, who is cut off after they have moved, and what pods are called. Pure.

use super::{PendingRoute, Slice, Supervisor};
use crate::core::advance::Recorded;
use crate::core::event::{Effect, Endpoint, RoleCommand, WriteOutcome};
use crate::core::facts::{Desired, Mono, Now, ReadsFact, Role, RouteFact, Ticket};
use crate::core::reads::{self, JOIN_AFTER};
use crate::core::route::{self, Wanted};

/// Pause between label writes for one pod: its own change must come back through the watch first.
const LABEL_PAUSE: Mono = Mono::from_secs(2);

/// A pod is called a replica no longer after it was out of sync for this long.
const LEAVE_AFTER: Mono = Mono::from_secs(1);

/// kube-proxy waits a second at most, by default, before it takes a second change.
const EVICT_AFTER: Mono = Mono::from_millis(1500);

/// The replicas' slice is written this long after the master's at the earliest, and after a failure.
const READS_AFTER: Mono = Mono::from_secs(1);

impl Supervisor {
    pub(super) fn is_routed(&self) -> bool {
        let (Some(master), Slice::Says(seen)) = (&self.record.master, &self.routing.seen) else {
            return false;
        };
        seen.uid.as_deref() == Some(&master.uid)
    }

    /// Make the master Service lead where it should.
    pub(super) fn steer(&mut self, now: Now, desired: &Desired, effects: &mut Vec<Effect>) {
        if self.stored.is_none() || self.routing.pending.is_some() || now.mono < self.routing.retry_at {
            return;
        }
        let situation = self.situation(now, desired);
        let endpoint = match route::wanted(&situation) {
            Wanted::Kept => return self.claim_route(effects),
            Wanted::Nobody => None,
            Wanted::To(endpoint) => Some(endpoint),
        };
        let idle = self.record.plan.is_none();
        match &self.routing.seen {
            Slice::Says(seen) if route::leads_to(seen, endpoint.as_ref()) => {
                return self.claim_route(effects);
            }
            Slice::Absent if endpoint.is_none() => return,
            // The watch tells soon what is there; an idle cluster has the time.
            Slice::Unknown
                if idle && (endpoint.is_none() || now.mono < self.evidence_since + Mono::from_secs(2)) =>
            {
                return;
            }
            _ => {}
        }
        // A slice that is ahead (the API server was set back, or the status was wiped) refuses older epochs.
        let ahead = matches!(&self.routing.seen, Slice::Says(seen) if seen.epoch > self.record.epoch);
        if !self.is_claimed() || ahead {
            if self.write.is_none()
                && let Some(next) = self.claim()
            {
                self.write(now, &next, Recorded::Claimed, effects);
            }
            return;
        }
        self.send_route(endpoint, effects);
    }

    /// Whoever takes over an open plan first writes the slice, so that a late write of the predecessor fails.
    fn claim_route(&mut self, effects: &mut Vec<Effect>) {
        let taken_over = self.record.plan.as_ref().is_some_and(|plan| plan.id != self.story.plan);
        if !taken_over || !self.is_claimed() || self.routing.claimed == Some(self.record.epoch) {
            return;
        }
        let Slice::Says(seen) = self.routing.seen.clone() else { return };
        let endpoint =
            self.members.values().find(|member| seen.uid.as_deref() == Some(&member.pod.uid)).and_then(
                |member| {
                    Some(Endpoint {
                        pod: member.pod.name.clone(),
                        uid: member.pod.uid.clone(),
                        ip: member.pod.ip?,
                        node: member.pod.node.clone(),
                    })
                },
            );
        self.routing.claimed = Some(self.record.epoch);
        self.send_route(endpoint, effects);
    }

    fn send_route(&mut self, endpoint: Option<Endpoint>, effects: &mut Vec<Effect>) {
        let ticket = self.ticket();
        let epoch = self.record.epoch;
        let written = RouteFact {
            ip: endpoint.as_ref().map(|endpoint| endpoint.ip.to_string()),
            uid: endpoint.as_ref().map(|endpoint| endpoint.uid.clone()),
            epoch,
        };
        let leaves = match &self.routing.seen {
            Slice::Says(RouteFact { uid: Some(old), .. }) if written.uid.as_ref() != Some(old) => {
                Some(old.clone())
            }
            _ => None,
        };
        self.routing.pending = Some(PendingRoute { ticket, written, leaves });
        effects.push(Effect::Route { ticket, endpoint, epoch });
    }

    /// Make the replicas Service lead where it should, after the master's.
    pub(super) fn steer_reads(&mut self, now: Now, desired: &Desired, effects: &mut Vec<Effect>) {
        let busy = self.reads.pending.is_some() || self.routing.pending.is_some() || self.write.is_some();
        if self.stored.is_none() || busy || now.mono < self.reads.not_before {
            return;
        }
        let situation = self.situation(now, desired);
        // While the master's slice lags behind the record, it comes first.
        if situation.well_master().is_some() && !self.is_routed() {
            return;
        }
        let Some(seen) = &self.reads.seen else { return };
        let endpoints = reads::wanted(&situation, seen);
        if reads::leads_to(seen, &endpoints) {
            return;
        }
        let epoch = self.record.epoch;
        let named = endpoints.iter().map(|endpoint| (endpoint.ip.to_string(), endpoint.uid.clone()));
        let written = ReadsFact { endpoints: named.collect(), epoch };
        let ticket = self.ticket();
        self.reads.pending = Some((ticket, written));
        effects.push(Effect::RouteReads { ticket, endpoints, epoch });
    }

    /// Cut the clients that still came to a pod after the Service had left it. A pod that does not answer by then
    /// has none.
    pub(super) fn evict(&mut self, now: Now, desired: &Desired, effects: &mut Vec<Effect>) {
        let due: Vec<String> =
            self.evictions.iter().filter(|(_, at)| now.mono >= **at).map(|(uid, _)| uid.clone()).collect();
        // Not while a change of the master may need its reply.
        if due.is_empty() || self.is_changing() {
            return;
        }
        if self.lease.is_none() && now.mono >= self.lease_retry_at {
            self.check_lease(effects);
        }
        for uid in due {
            let member = self.situation(now, desired).members.get(&uid);
            let busy = member.is_some_and(|member| member.outstanding.is_some());
            if busy || !self.is_claimed() || !self.lease_is_checked() {
                continue; // later
            }
            let reading = member.and_then(|member| member.settled(now.mono));
            let is_replica = reading.is_some_and(|info| info.role == Role::Replica);
            self.evictions.remove(&uid);
            if is_replica {
                self.command(now.mono, &uid, RoleCommand::CutClients, effects);
            }
        }
    }

    /// Role labels, for people and budgets.
    pub(super) fn label(&mut self, now: Now, desired: &Desired, effects: &mut Vec<Effect>) {
        if self.is_changing() || self.stored.is_none() {
            return;
        }
        let situation = self.situation(now, desired);
        let now = now.mono;
        let mut labels = Vec::new();
        for member in situation.listed() {
            let is_master = situation.master().is_some_and(|(master, _)| master.uid == member.pod.uid);
            let role = if is_master {
                Some("master")
            } else if member.in_sync_since.is_some_and(|since| now >= since + JOIN_AFTER) {
                Some("replica")
            } else {
                None
            };
            let out = member.out_of_sync_since.is_some_and(|since| now >= since + LEAVE_AFTER);
            let undecided = role.is_none() && !out && member.pod.role_label.as_deref() != Some("master");
            if role != member.pod.role_label.as_deref() && !undecided && !member.pod.terminating {
                labels.push((member.pod.name.clone(), member.pod.uid.clone(), role));
            }
        }
        for (pod, uid, role) in labels {
            let fresh =
                self.labelled.get(&uid).is_some_and(|(said, at)| *said == role && now < *at + LABEL_PAUSE);
            if !fresh {
                self.labelled.insert(uid.clone(), (role, now));
                effects.push(Effect::Label { pod, uid, role });
            }
        }
        let members = &self.members;
        self.labelled.retain(|uid, _| members.contains_key(uid));
    }

    pub(super) fn route_written(
        &mut self,
        now: Now,
        ticket: Ticket,
        outcome: WriteOutcome,
        effects: &mut Vec<Effect>,
    ) {
        let Some(PendingRoute { written, leaves, .. }) =
            self.routing.pending.take_if(|pending| pending.ticket == ticket)
        else {
            return;
        };
        match outcome {
            WriteOutcome::Written => {
                self.tell_routed(now, &written, effects);
                // Proxies follow the slice late: until then they lead clients to the old pod, where nothing but
                // `READONLY` awaits them, for as long as their connections live.
                self.evictions.extend(leaves.map(|old| (old, now.mono + EVICT_AFTER)));
                // The proxies' one immediate change was this one.
                self.reads.not_before = now.mono + READS_AFTER;
                self.routing.seen = Slice::Says(written);
            }
            WriteOutcome::Conflict => {
                // Not a proof that we are old: the lease decides.
                self.routing.seen = Slice::Unknown;
                self.routing.retry_at = now.mono + Mono::from_millis(20);
                self.check_lease(effects);
            }
            WriteOutcome::Gone | WriteOutcome::NotSent | WriteOutcome::Unknown(_) => {
                self.routing.seen = Slice::Unknown;
                self.routing.retry_at = now.mono + Mono::from_millis(250);
            }
            WriteOutcome::Denied(why) => {
                self.tell_denied("the EndpointSlice of the master Service", &why, effects);
                self.routing.retry_at = now.mono + Mono::from_secs(5);
            }
        }
    }

    pub(super) fn reads_written(
        &mut self,
        now: Now,
        ticket: Ticket,
        outcome: WriteOutcome,
        effects: &mut Vec<Effect>,
    ) {
        let Some((_, written)) = self.reads.pending.take_if(|(pending, _)| *pending == ticket) else {
            return;
        };
        match outcome {
            WriteOutcome::Written => self.reads.seen = Some(written),
            // What is there comes through the watch, or is read by the next write.
            WriteOutcome::Conflict
            | WriteOutcome::Gone
            | WriteOutcome::NotSent
            | WriteOutcome::Unknown(_) => {
                self.reads.not_before = now.mono + READS_AFTER;
            }
            WriteOutcome::Denied(why) => {
                self.tell_denied("the EndpointSlice of the replicas Service", &why, effects);
                self.reads.not_before = now.mono + Mono::from_secs(5);
            }
        }
    }
}
