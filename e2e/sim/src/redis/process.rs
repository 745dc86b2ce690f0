//! One server process: what it is, what it holds, and whom it talks to.

use std::collections::VecDeque;
use std::net::IpAddr;

use redis_ha_operator::core::facts::Role;

use crate::history::{Head, WriteId};
use crate::net::{ConnId, Msg};
use crate::setup::Machine;
use crate::time::{SECOND, Time};

/// `min-replicas-max-lag`
pub const MAX_LAG: Time = 3;
/// `repl-timeout`
pub const REPL_TIMEOUT: Time = 10 * SECOND;
/// The server keeps so many writes for replicas that come back; more than a fault's worth.
const BACKLOG: usize = 20_000;

/// Replication id; 0 is none.
pub type ReplId = u32;

/// What replicas may be given without a full sync.
#[derive(Clone, Debug)]
pub struct Backlog {
    /// Replicas at this offset or later can be served.
    pub from: i64,
    pub items: VecDeque<(i64, Head)>,
}

impl Backlog {
    pub fn new(offset: i64) -> Self {
        Self { from: offset, items: VecDeque::new() }
    }

    pub fn push(&mut self, offset: i64, head: Head) {
        self.items.push_back((offset, head));
        if self.items.len() > BACKLOG
            && let Some((gone, _)) = self.items.pop_front()
        {
            self.from = gone;
        }
    }
}

/// A replica's connection to its master.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LinkState {
    /// Handshake under way.
    Asked,
    /// A full sync: the data set is on its way.
    Transfer,
    /// The data set is being loaded.
    Loading,
    Up,
}

#[derive(Clone, Copy, Debug)]
pub struct Upstream {
    pub conn: ConnId,
    pub state: LinkState,
    pub since: Time,
}

/// A master's view of one replica.
#[derive(Clone, Copy, Debug)]
pub struct Downstream {
    pub conn: ConnId,
    pub pid: usize,
    pub online: bool,
    pub ack: i64,
    pub ack_at: Time,
}

/// What lies on the disk, besides an append-only file, which is the data itself.
#[derive(Clone, Copy, Debug, Default)]
pub struct Snapshot {
    pub head: Head,
    pub replid: ReplId,
    pub offset: i64,
}

/// A server process.
#[derive(Clone, Debug)]
pub struct Process {
    pub pod: usize,
    pub machine: Machine,
    pub ip: IpAddr,
    pub run: String,
    pub born: Time,
    pub alive: bool,
    pub frozen: Option<Time>,
    /// A script keeps it busy since; from 5 s on it says so.
    pub script: Option<Time>,
    /// When it last began to run again.
    pub thawed: Time,
    pub loading: bool,
    pub role: Role,
    /// Where a replica looks for its master; `None` is the placeholder.
    pub source: Option<IpAddr>,
    pub replid: ReplId,
    pub replid2: ReplId,
    pub second_offset: i64,
    pub offset: i64,
    /// It knows its position in the history of `replid`.
    pub positioned: bool,
    pub backlog: Option<Backlog>,
    pub head: Head,
    /// The replication user is on: it lets replicas sync.
    pub serves: bool,
    pub quorum: u32,
    /// Replicas that acknowledged lately, when it last looked.
    pub good: u32,
    /// Connections that were accepted here.
    pub conns: Vec<ConnId>,
    pub upstream: Option<Upstream>,
    pub downstream: Vec<Downstream>,
    pub link_down_at: Option<Time>,
    pub last_io: Time,
    pub paused_until: Option<Time>,
    /// Clients' writes that are held back.
    pub held: Vec<(ConnId, WriteId, bool)>,
    /// Clients that wait until a replica has acknowledged this offset.
    pub waits: VecDeque<(i64, WriteId)>,
    pub cannot_save: bool,
    /// What arrived while it did not run.
    pub inbox: Vec<(ConnId, Msg)>,
    pub snapshot: Option<Snapshot>,
    /// It was asked to end.
    pub ending: bool,
    pub cron_at: Time,
    pub cron_beat: u32,
}

impl Process {
    pub fn runs(&self) -> bool {
        self.alive && self.frozen.is_none() && self.script.is_none()
    }

    pub fn link_is_up(&self) -> bool {
        self.upstream.is_some_and(|upstream| upstream.state == LinkState::Up)
    }

    pub fn is_fenced(&self) -> bool {
        self.role == Role::Replica && self.source.is_none()
    }

    pub fn is_paused(&self, now: Time) -> bool {
        self.paused_until.is_some_and(|until| now < until)
    }

    /// Would it take a client's write now?
    pub fn accepts(&self, now: Time) -> bool {
        self.runs()
            && self.role == Role::Master
            && !self.loading
            && !self.cannot_save
            && !self.is_paused(now)
            && !self.ending
            && self.good >= self.quorum
    }

    /// Replicas whose word is young enough; whole seconds, as the server counts.
    pub fn count_good(&self, now: Time) -> u32 {
        let good =
            |replica: &&Downstream| replica.online && now / SECOND - replica.ack_at / SECOND <= MAX_LAG;
        u32::try_from(self.downstream.iter().filter(good).count()).unwrap_or(u32::MAX)
    }
}
