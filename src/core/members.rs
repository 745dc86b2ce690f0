//! What the supervisor itself has seen of each pod: connection, answers, signs of trouble. Pure.
//!
//! Kubernetes' word is in [`PodFact`]; everything else here comes from the servers. All ages are measured on
//! the caller's clock.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::time::Duration;

use super::event::RoleCommand;
use super::facts::{Info, LinkId, Mono, PodFact, Role, Ticket};
use crate::api::status::ProcessRef;

/// A probe that is not answered within this is late. It stays outstanding: its reply may be the veto.
pub const PROBE_DEADLINE: Duration = Duration::from_millis(300);

/// Two refusals count as two only when they are this far apart: one instant proves nothing.
pub const REFUSAL_SPACING: Duration = Duration::from_millis(5);

/// Answers older than this support no decision.
pub const FRESH: Duration = Duration::from_secs(1);

/// All pods by uid, in a stable order.
pub type Members = BTreeMap<String, Member>;

/// One answer of a server.
#[derive(Clone, Debug, PartialEq)]
pub struct Sample {
    /// When the question was asked: the answer describes no earlier moment.
    pub asked_at: Mono,
    pub answered_at: Mono,
    pub info: Info,
}

/// The connection to a pod's server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Link {
    Closed,
    /// `silent`: TCP connected, but nothing was answered within the deadline.
    Dialing {
        since: Mono,
        silent: bool,
    },
    Open {
        id: LinkId,
    },
}

/// What a pod looks like from here, right now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Class {
    /// Never reached yet.
    Unknown,
    /// Answers INFO in time.
    Ok,
    /// Answers INFO in time: it is loading its data.
    Loading,
    /// Answers, but not INFO: a script runs.
    Busy,
    /// Connected, but answers nothing.
    Hung,
    /// Nothing listens.
    Refused,
    /// No way there.
    Unroutable,
    /// Answers, but does not let us in.
    Denied,
}

/// A role command that was sent and not answered yet.
#[derive(Clone, Debug, PartialEq)]
pub struct Outstanding {
    pub ticket: Ticket,
    pub command: RoleCommand,
    pub sent_at: Mono,
}

/// Clients' writes that were held back for a switch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Paused {
    pub at: Mono,
    /// The master's position then.
    pub goal: i64,
    /// They may go on.
    pub ended: bool,
}

/// One pod and its server.
#[derive(Clone, Debug)]
pub struct Member {
    pub pod: PodFact,
    /// Kubernetes still lists it.
    pub listed: bool,
    pub link: Link,
    /// Last answer on the open connection.
    pub sample: Option<Sample>,
    /// Run id that the open (or last) connection was bound to.
    pub run_id: Option<String>,
    /// Unanswered probes on the open connection, oldest first.
    pub asked: Vec<Mono>,
    pub last_asked: Mono,
    /// First bad sign since the last good answer.
    pub bad_since: Option<Mono>,
    /// First sign that the process before this one was in trouble.
    pub predecessor_bad_since: Option<Mono>,
    /// An established connection ended, since the last good answer.
    pub lost_at: Option<Mono>,
    /// Refused connects since the last good answer: first and latest.
    pub refused: Option<(Mono, Mono)>,
    /// Unroutable since, without anything better in between.
    pub unroutable_since: Option<Mono>,
    pub denied: Option<String>,
    /// Answers that a script runs, since.
    pub busy_since: Option<Mono>,
    /// Answers show it loading since.
    pub loading_since: Option<Mono>,
    /// Answers show a FAILOVER under way since.
    pub failover_since: Option<Mono>,
    /// When its clients were paused on this connection, and its position then.
    pub paused: Option<Paused>,
    /// When its pod was told to be deleted.
    pub deleted_at: Option<Mono>,
    /// No dial before this.
    pub redial_at: Mono,
    pub failed_dials: u32,
    pub knock_pending: bool,
    pub knocked_at: Mono,
    pub outstanding: Option<Outstanding>,
    /// A command was refused: no other before this.
    pub command_again_at: Mono,
    /// When a refusal was told last.
    pub refusal_told_at: Option<Mono>,
    /// Only answers to questions asked after this count: a command's fate was unknown then.
    pub read_after: Mono,
    /// Seen streaming from the recorded master, last time.
    pub streamed_at: Option<Mono>,
    /// Position and the number of reads in a row that showed it.
    pub stood_still: (i64, u32),
    /// First of the reads in a row that showed it in sync with the recorded master.
    pub in_sync_since: Option<Mono>,
    /// Not in sync with the recorded master since.
    pub out_of_sync_since: Option<Mono>,
    /// Answers show it fenced since.
    pub fenced_since: Option<Mono>,
    /// When it was last told to follow somebody.
    pub followed_at: Option<Mono>,
    /// When it was last told, on this connection, to let replicas in.
    pub served_at: Option<Mono>,
    /// Kubernetes does not list it since.
    pub unlisted_since: Option<Mono>,
}

impl Member {
    pub fn new(pod: PodFact) -> Self {
        Self {
            pod,
            listed: true,
            link: Link::Closed,
            sample: None,
            run_id: None,
            asked: Vec::new(),
            last_asked: Mono::ZERO,
            bad_since: None,
            predecessor_bad_since: None,
            lost_at: None,
            refused: None,
            unroutable_since: None,
            denied: None,
            busy_since: None,
            loading_since: None,
            failover_since: None,
            paused: None,
            deleted_at: None,
            redial_at: Mono::ZERO,
            failed_dials: 0,
            knock_pending: false,
            knocked_at: Mono::ZERO,
            outstanding: None,
            command_again_at: Mono::ZERO,
            refusal_told_at: None,
            read_after: Mono::ZERO,
            streamed_at: None,
            stood_still: (-1, 0),
            in_sync_since: None,
            out_of_sync_since: None,
            fenced_since: None,
            followed_at: None,
            served_at: None,
            unlisted_since: None,
        }
    }

    /// The process on the open connection.
    pub fn process(&self) -> Option<ProcessRef> {
        let Link::Open { .. } = self.link else { return None };
        let run_id = self.run_id.clone()?;
        Some(ProcessRef { pod: self.pod.name.clone(), uid: self.pod.uid.clone(), run_id })
    }

    pub fn link_id(&self) -> Option<LinkId> {
        match self.link {
            Link::Open { id } => Some(id),
            Link::Closed | Link::Dialing { .. } => None,
        }
    }

    /// Is this the process meant, on an open connection?
    pub fn is(&self, process: &ProcessRef) -> bool {
        self.link_id().is_some()
            && self.pod.uid == process.uid
            && self.run_id.as_deref() == Some(&process.run_id)
    }

    /// What the pod looks like now.
    pub fn class(&self, now: Mono) -> Class {
        match self.link {
            Link::Open { .. } => {
                let late =
                    self.asked.first().is_some_and(|asked| now.saturating_sub(*asked) > PROBE_DEADLINE);
                if self.unroutable_since.is_some() {
                    Class::Unroutable
                } else if late {
                    Class::Hung
                } else if self.denied.is_some() {
                    Class::Denied
                } else if self.busy_since.is_some() {
                    Class::Busy
                } else if self.sample.as_ref().is_some_and(|sample| sample.info.loading) {
                    Class::Loading
                } else {
                    Class::Ok
                }
            }
            _ if self.denied.is_some() => Class::Denied,
            _ if self.unroutable_since.is_some() => Class::Unroutable,
            _ if self.refused.is_some() => Class::Refused,
            // It lets nobody in while a script runs.
            _ if self.busy_since.is_some() => Class::Busy,
            Link::Dialing { silent: true, .. } => Class::Hung,
            Link::Dialing { .. } | Link::Closed => Class::Unknown,
        }
    }

    /// The last answer, if it is good enough to act upon: recent, on the open connection, in time, and asked
    /// after the last command whose fate was unknown.
    pub fn reading(&self, now: Mono) -> Option<&Info> {
        let sample = self.sample.as_ref()?;
        let usable = matches!(self.class(now), Class::Ok | Class::Loading)
            && now.saturating_sub(sample.answered_at) <= FRESH
            && sample.asked_at >= self.read_after;
        usable.then_some(&sample.info)
    }

    /// As [`Self::reading`], and no command is under way: its answer would change the picture.
    pub fn settled(&self, now: Mono) -> Option<&Info> {
        if self.outstanding.is_some() { None } else { self.reading(now) }
    }

    /// The last answer to a question asked after `moment`.
    pub fn answer_since(&self, moment: Mono) -> Option<&Info> {
        self.sample.as_ref().filter(|sample| sample.asked_at >= moment).map(|sample| &sample.info)
    }

    /// A connection of ours ended and nothing listens any more: this process is gone.
    pub fn is_gone(&self) -> bool {
        self.lost_at.is_some() && self.refused_twice()
    }

    /// Its pod is being deleted or is deleted, our connection ended, and nothing can be reached there any more:
    /// the pod's network goes away with it, so there may never be a second refusal.
    pub fn ended_with_its_pod(&self) -> bool {
        let deleted = self.pod.terminating || !self.listed;
        let nothing_there = self.refused.is_some() || self.unroutable_since.is_some();
        deleted && self.lost_at.is_some() && nothing_there
    }

    pub fn refused_twice(&self) -> bool {
        self.refused.is_some_and(|(first, last)| last.saturating_sub(first) >= REFUSAL_SPACING)
    }

    /// A replica's position; none when it has no link and never had one.
    pub fn position(info: &Info) -> Option<i64> {
        match info.replica_offset {
            Some(offset) if offset > 1 || (offset == 1 && info.link_up) => Some(offset),
            _ => None,
        }
    }

    /// Does the server follow this address?
    pub fn follows(info: &Info, ip: IpAddr, port: u16) -> bool {
        info.role == Role::Replica
            && info.master_port == port
            && info.master_host.as_deref().and_then(|host| host.parse::<IpAddr>().ok()) == Some(ip)
    }

    // What happened to it.

    pub fn connected(&mut self, now: Mono, link: LinkId, asked_at: Mono, info: Info) {
        self.link = Link::Open { id: link };
        if self.run_id.as_deref() != Some(&info.run_id) {
            self.streamed_at = None; // another process, which has seen no master yet
            self.predecessor_bad_since = self.bad_since;
        }
        self.run_id = Some(info.run_id.clone());
        self.asked.clear();
        self.failed_dials = 0;
        self.outstanding = None;
        self.stood_still = (-1, 0);
        self.fenced_since = None;
        self.served_at = None;
        self.followed_at = None;
        self.loading_since = None;
        self.failover_since = None;
        self.paused = None;
        self.answered(now, asked_at, info);
    }

    /// An answer of INFO, by a probe or inside a command's transaction.
    pub fn answered(&mut self, now: Mono, asked_at: Mono, info: Info) {
        self.asked.retain(|asked| *asked > asked_at);
        let position = info.replica_offset.unwrap_or(-1);
        self.stood_still =
            if self.stood_still.0 == position { (position, self.stood_still.1 + 1) } else { (position, 1) };
        let since = |is: bool, before: Option<Mono>| if is { before.or(Some(now)) } else { None };
        self.fenced_since = since(info.is_fenced(), self.fenced_since);
        self.loading_since = since(info.loading, self.loading_since);
        self.failover_since = since(info.failover_running, self.failover_since);
        if self.bad_since.is_none_or(|since| asked_at >= since) {
            self.forgive();
        }
        if self.sample.as_ref().is_none_or(|sample| sample.asked_at <= asked_at) {
            self.sample = Some(Sample { asked_at, answered_at: now, info });
        }
    }

    /// A good answer to a question asked after the first bad sign voids all signs.
    fn forgive(&mut self) {
        self.bad_since = None;
        self.lost_at = None;
        self.refused = None;
        self.unroutable_since = None;
        self.denied = None;
        self.busy_since = None;
    }

    /// It answered, but not what was asked: a script runs, or it does not let us in.
    pub fn turned_away(&mut self, now: Mono, why: String) {
        if why.starts_with("BUSY") {
            self.busy_since.get_or_insert(now);
        } else {
            self.denied = Some(why);
        }
    }

    pub fn suspect(&mut self, now: Mono) {
        self.bad_since.get_or_insert(now);
    }

    pub fn link_lost(&mut self, now: Mono) {
        self.link = Link::Closed;
        self.asked.clear();
        self.outstanding = None;
        self.knock_pending = false;
        self.suspect(now);
        self.lost_at = Some(now);
        self.in_sync_since = None;
        self.redial_at = now;
        self.failed_dials = 0;
    }

    /// We closed the connection ourselves; that is no sign of anything.
    pub fn hung_up(&mut self, now: Mono) {
        self.link = Link::Closed;
        self.asked.clear();
        self.outstanding = None;
        self.redial_at = now;
    }

    /// Its pod has another address: the connection, and what was seen at the old address, is worth nothing.
    pub fn moved(&mut self, now: Mono) {
        self.hung_up(now);
        self.suspect(now);
        self.refused = None;
        self.unroutable_since = None;
        self.knock_pending = false;
    }

    pub fn refused(&mut self, now: Mono) {
        self.suspect(now);
        self.unroutable_since = None;
        self.denied = None;
        self.refused = Some(match self.refused {
            Some((first, _)) => (first, now),
            None => (now, now),
        });
    }

    pub fn unroutable(&mut self, now: Mono) {
        self.suspect(now);
        self.refused = None;
        self.denied = None;
        self.unroutable_since.get_or_insert(now);
    }

    /// A dial ended without a connection: pause a little longer each time.
    pub fn dial_failed(&mut self, now: Mono) {
        self.link = Link::Closed;
        self.failed_dials = self.failed_dials.saturating_add(1);
        let pause = match self.failed_dials {
            0 | 1 => REFUSAL_SPACING + Duration::from_millis(1),
            2 => Duration::from_millis(20),
            3..=10 => Duration::from_millis(50),
            11..=30 => Duration::from_millis(250),
            _ => Duration::from_millis(500),
        };
        self.redial_at = now + pause;
    }

    /// Old evidence is void: our own clock or path was in doubt. What was asked stays asked: the questions are still
    /// on the connection, and while they are, no others are sent.
    pub fn void(&mut self, now: Mono) {
        self.sample = None;
        self.streamed_at = None;
        self.in_sync_since = None;
        self.lost_at = None;
        self.refused = None;
        self.unroutable_since = None;
        self.knock_pending = false;
        self.read_after = now;
        self.bad_since = Some(now);
        self.redial_at = now;
    }
}
