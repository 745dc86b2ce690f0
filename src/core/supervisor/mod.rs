//! The state machine of one cluster: `(now, event) -> effects`. Pure.
//!
//! `handle` takes in the event, keeps the evidence fresh, and then compares what is recorded with what is seen.
//! It remembers evidence and what is under way, never intentions: those are in the record.

mod absorb;
mod act;
mod observe;
mod publish;
mod requests;
mod routing;
mod tell;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::time::Duration;

use super::advance::Recorded;
use super::event::{Effect, Event};
use super::facts::{ControllerReport, Desired, LinkId, Mono, Now, ReadsFact, RouteFact, Ticket};
use super::held::Held;
use super::mechanism::{Mechanism, on};
use super::members::Members;
use super::situation::Situation;
use super::story::Story;
use crate::api::status::{PlanStep, RedisClusterStatus, Supervision};

/// A wake-up that comes this late means that we were stopped, or starved: what we saw before is void.
const STALL: Duration = Duration::from_secs(1);

/// Whether this operator may act on the cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Mode {
    /// Another operator leads.
    Off,
    /// Nobody is known to lead: keep the evidence warm, change nothing.
    Watching,
    Leading {
        term: String,
    },
}

/// A status write that is under way.
#[derive(Clone, Debug)]
struct PendingWrite {
    ticket: Ticket,
    status: Box<RedisClusterStatus>,
    what: Recorded,
}

/// The master Service's slice, as far as it is known.
#[derive(Clone, Debug, Default)]
enum Slice {
    #[default]
    Unknown,
    Absent,
    Says(RouteFact),
}

/// A route that is being written. The watch may show it before the write is answered.
#[derive(Clone, Debug)]
struct PendingRoute {
    ticket: Ticket,
    written: RouteFact,
    /// Uid of the pod that it leads away from.
    leaves: Option<String>,
}

/// The slice: as seen, and as being written.
#[derive(Clone, Debug, Default)]
struct Routing {
    seen: Slice,
    pending: Option<PendingRoute>,
    retry_at: Mono,
    /// Epoch of the open plan that was claimed on the slice.
    claimed: Option<u64>,
}

/// The replicas Service's slice: as seen, and as being written.
#[derive(Clone, Debug, Default)]
struct Reads {
    /// `None` until a watch has told.
    seen: Option<ReadsFact>,
    pending: Option<(Ticket, ReadsFact)>,
    /// Nothing is written before.
    not_before: Mono,
}

/// One cluster.
#[derive(Clone, Debug)]
pub struct Supervisor {
    uid: String,
    mode: Mode,
    desired: Option<Desired>,
    report: ControllerReport,
    /// When the record was seen to be gone from the status.
    wiped: Option<Mono>,
    /// The status as the API server has it; `None` when that is not known.
    stored: Option<RedisClusterStatus>,
    /// Needed for the very first write only.
    resource_version: String,
    record: Supervision,
    members: Members,
    evidence_since: Mono,
    /// The connection whose pod was read live and found to be the recorded master's.
    confirmed: Option<(String, LinkId)>,
    /// First ticket of this question, whose connection, and when it was asked last.
    confirming: Option<(Ticket, String, LinkId, Mono)>,
    write: Option<PendingWrite>,
    /// A write without an answer may still land: the next one raises the epoch, so that it then fails.
    unsettled: bool,
    reading: bool,
    read_at: Mono,
    read_failures: u32,
    api_lost_since: Option<Mono>,
    /// The plan for which a live read of the lease was asked, and whether it was ours.
    lease: Option<(Ticket, bool)>,
    lease_retry_at: Mono,
    routing: Routing,
    reads: Reads,
    /// Pods that the Service led to before, and when their clients are cut once more.
    evictions: BTreeMap<String, Mono>,
    labelled: BTreeMap<String, (Option<&'static str>, Mono)>,
    next_ticket: Ticket,
    max_epoch: u64,
    step: Option<(String, PlanStep, u64)>,
    step_since: Mono,
    definitive: bool,
    /// The plan that was opened in this term and for which nobody was demoted yet.
    untouched: Option<String>,
    switch_not_before: Mono,
    /// The request for a switch that was answered, and when its removal was asked for.
    answered: Option<(String, Mono)>,
    /// The request that the open switch carries out.
    carried_out: Option<String>,
    /// Switches in a row that did not come about.
    failed_switches: u32,
    /// The plan for which the lease was handed over.
    yielded: Option<String>,
    story: Story,
    rule: &'static str,
    held: Option<(Held, String)>,
    held_told: Option<(Held, Mono)>,
    suspected_since: Option<Mono>,
    /// The status on record is not what people should read, since.
    differs_since: Option<Mono>,
    publish_at: Mono,
    gauges: Option<super::event::StateGauges>,
    due: Option<Mono>,
}

impl Supervisor {
    /// `uid` is that of the `RedisCluster`.
    pub fn new(uid: String) -> Self {
        Self {
            uid,
            mode: Mode::Off,
            desired: None,
            report: ControllerReport::default(),
            wiped: None,
            stored: None,
            resource_version: String::new(),
            record: Supervision::default(),
            members: Members::new(),
            evidence_since: Mono::ZERO,
            confirmed: None,
            confirming: None,
            write: None,
            unsettled: false,
            reading: false,
            read_at: Mono::ZERO,
            read_failures: 0,
            api_lost_since: None,
            lease: None,
            lease_retry_at: Mono::ZERO,
            routing: Routing::default(),
            reads: Reads::default(),
            evictions: BTreeMap::new(),
            labelled: BTreeMap::new(),
            next_ticket: 0,
            max_epoch: 0,
            step: None,
            step_since: Mono::ZERO,
            definitive: false,
            untouched: None,
            switch_not_before: Mono::ZERO,
            answered: None,
            carried_out: None,
            failed_switches: 0,
            yielded: None,
            story: Story::default(),
            rule: "Standby",
            held: None,
            held_told: None,
            suspected_since: None,
            differs_since: None,
            publish_at: Mono::ZERO,
            gauges: None,
            due: None,
        }
    }

    /// Take in one event; what is to be done follows. Call again at [`Self::wake_at`] at the latest.
    pub fn handle(&mut self, now: Now, event: Event) -> Vec<Effect> {
        let mut effects = Vec::new();
        self.doubt_ourselves(now.mono);
        self.absorb(now, event, &mut effects);
        if self.mode != Mode::Off {
            self.observe(now.mono, &mut effects);
        }
        if matches!(self.mode, Mode::Leading { .. }) {
            self.act(now, &mut effects);
        }
        self.due = self.next_due(now.mono);
        effects
    }

    /// When to call [`Self::handle`] again if nothing happens before.
    pub fn wake_at(&self) -> Option<Mono> {
        self.due
    }

    /// Name of the rule that decided last, for logs.
    pub fn rule(&self) -> &'static str {
        self.rule
    }

    /// If we come late to our own appointment, the world went on without us: old evidence is void.
    fn doubt_ourselves(&mut self, now: Mono) {
        if self.due.is_some_and(|due| now > due + STALL) && on(Mechanism::SelfDoubt) {
            self.void_evidence(now);
        }
    }

    fn void_evidence(&mut self, now: Mono) {
        self.evidence_since = now;
        self.definitive = false;
        for member in self.members.values_mut() {
            member.void(now);
        }
    }

    fn situation<'a>(&'a self, now: Now, desired: &'a Desired) -> Situation<'a> {
        let replaced_confirmed = self.record.master.as_ref().is_some_and(|master| {
            let link = self.members.get(&master.uid).and_then(super::members::Member::link_id);
            link.is_some()
                && self.confirmed.as_ref().map(|(uid, link)| (uid.as_str(), *link))
                    == link.map(|link| (master.uid.as_str(), link))
        });
        Situation {
            now: now.mono,
            wall: now.wall,
            desired,
            record: &self.record,
            members: &self.members,
            term: self.term(),
            evidence_since: self.evidence_since,
            replaced_confirmed,
            api_lost_since: self.api_lost_since,
            step_since: self.step_since,
            definitive: self.definitive,
            nothing_sent: self
                .record
                .plan
                .as_ref()
                .is_some_and(|plan| self.untouched.as_ref() == Some(&plan.id)),
            switch_not_before: self.switch_not_before,
            request: self.request(desired),
            last_switch_ago: self.last_switch_ago(now.wall),
            is_routed: self.is_routed(),
            next_epoch: self.author_epoch(),
        }
    }

    fn term(&self) -> Option<&str> {
        match &self.mode {
            Mode::Leading { term } => Some(term),
            Mode::Off | Mode::Watching => None,
        }
    }

    fn ticket(&mut self) -> Ticket {
        self.next_ticket += 1;
        self.next_ticket
    }
}
