//! A small stage for the state machine: three fake servers, a fake API server, virtual time.
//!
//! It answers effects the way the real ones do, with short delays, in one deterministic order. The simulator is
//! the place for everything wilder.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::jiff::Timestamp;

use crate::api::status::{RedisClusterStatus, Supervision};
use crate::core::event::{Effect, Event, Expect, Notice, RoleCommand};
use crate::core::facts::{
    Desired, LinkId, Mono, NodeState, Now, PLACEHOLDER_HOST, PodFact, ReadsFact, Role, RouteFact,
};
use crate::core::supervisor::Supervisor;

mod answers;
mod clients;
mod faults;
mod servers;

pub const MS: Duration = Duration::from_millis(1);

/// One pod and its server.
#[expect(clippy::struct_excessive_bools, reason = "each is one independent fact of a fake server")]
#[derive(Clone, Debug)]
pub struct Node {
    pub name: String,
    pub uid: String,
    pub ip: IpAddr,
    pub listed: bool,
    pub terminating: bool,
    pub place: NodeState,
    pub up: bool,
    pub frozen: bool,
    /// The operator's packets get lost.
    pub cut_off: bool,
    /// A proxy accepts in its place and hangs up.
    pub proxied: bool,
    /// It lets nobody in.
    pub denies: bool,
    pub run: u32,
    pub role: Role,
    pub master: (String, u16),
    pub serving: bool,
    pub replid: String,
    pub replid2: String,
    pub second_offset: i64,
    pub offset: i64,
    pub positioned: bool,
    pub backlog: bool,
    pub keys: u64,
    pub link_up: bool,
    pub link_lost: Option<Mono>,
    pub quorum: u32,
    pub label: Option<String>,
    pub promotions: u32,
    pub full_syncs: u32,
    /// Writes of clients that it holds.
    pub writes: Arc<BTreeSet<u64>>,
    /// As a replica: when its master last fed it.
    pub fed: Mono,
    /// As a master: when enough replicas acknowledged.
    pub acknowledged: Mono,
}

/// `min-replicas-max-lag`, and the second until the server's cron looks at it.
const LEASE: Duration = Duration::from_secs(4);
/// `repl-timeout`
const REPL_TIMEOUT: Duration = Duration::from_secs(10);

impl Node {
    fn new(ordinal: u8) -> Self {
        Self {
            name: format!("cache-{ordinal}"),
            uid: format!("uid-{ordinal}"),
            ip: IpAddr::from([10, 0, 0, ordinal + 1]),
            listed: true,
            terminating: false,
            place: NodeState::Fit,
            up: true,
            frozen: false,
            cut_off: false,
            proxied: false,
            denies: false,
            run: 1,
            role: Role::Replica,
            master: (PLACEHOLDER_HOST.to_owned(), 0),
            serving: false,
            replid: format!("boot-{ordinal}-1"),
            replid2: "0".to_owned(),
            second_offset: -1,
            offset: 0,
            positioned: false,
            backlog: false,
            keys: 0,
            link_up: false,
            link_lost: None,
            quorum: 0,
            label: None,
            promotions: 0,
            full_syncs: 0,
            writes: Arc::default(),
            fed: Mono::ZERO,
            acknowledged: Mono::ZERO,
        }
    }

    pub fn run_id(&self) -> String {
        format!("{}-run-{}", self.name, self.run)
    }

    fn answers(&self) -> bool {
        self.up && !self.frozen && !self.cut_off
    }
}

#[derive(Clone, Debug)]
enum Due {
    Event(Event),
    Effect(Effect),
}

/// The stage.
#[derive(Clone)]
#[allow(clippy::struct_excessive_bools)] // each is one fault that a test may ask for
pub struct Stage {
    pub now: Mono,
    pub nodes: Vec<Node>,
    pub operator: Supervisor,
    pub status: Option<RedisClusterStatus>,
    pub resource_version: u64,
    pub api_up: bool,
    pub slice: Option<RouteFact>,
    /// The watch shows a slice before its write is answered.
    pub watch_is_fast: bool,
    pub reads_slice: Option<ReadsFact>,
    pub reads_writes: u32,
    pub lease_holder: String,
    pub told: Vec<Notice>,
    /// Pods whose deletion was ordered.
    pub deleted: Vec<String>,
    /// How often the lease was handed over.
    pub yields: u32,
    pub commands: Vec<(String, RoleCommand)>,
    pub status_writes: u32,
    pub label_writes: u32,
    pub route_writes: u32,
    pub reads: u32,
    pub desired: Desired,
    /// The operator dies right before (false) or after (true) the n-th changing effect.
    pub crash_at: Option<(u32, bool)>,
    /// The operator is paused with its n-th changing effect in hand.
    pub pause_at: Option<u32>,
    pub in_hand: Option<Effect>,
    /// Pairs of pods whose servers cannot reach each other.
    pub cuts: Vec<(String, String)>,
    pub effects: u32,
    pub crashed: bool,
    /// The next status write gets no answer, and is kept.
    pub keep_write: bool,
    /// A status write that the API server has kept for itself.
    pub late_write: Option<(Expect, Box<RedisClusterStatus>)>,
    /// So many live reads of a pod fail.
    pub failing_confirmations: u32,
    /// The connection breaks after the next command, before its reply.
    pub lose_reply: bool,
    /// Replicas of the master that are none of our pods; they acknowledge everything.
    pub strangers: u8,
    /// Writes that a replica holds, too.
    pub confirmed: BTreeSet<u64>,
    /// Rules that were broken.
    pub broken: Vec<String>,
    promoted_in: BTreeMap<u64, u32>,
    /// Sent to a server that does not read now.
    held: Vec<(u32, Mono, Effect)>,
    next_write: u64,
    term: u32,
    queue: VecDeque<(Mono, u64, Due)>,
    sequence: u64,
    links: BTreeMap<String, (LinkId, u32)>,
    next_link: LinkId,
}

impl Stage {
    pub fn new(replicas: u8) -> Self {
        let mut stage = Self {
            now: Duration::from_secs(100),
            nodes: (0..replicas).map(Node::new).collect(),
            operator: Supervisor::new("cluster-uid".to_owned()),
            status: None,
            resource_version: 1,
            api_up: true,
            slice: None,
            watch_is_fast: false,
            reads_slice: None,
            reads_writes: 0,
            lease_holder: String::new(),
            told: Vec::new(),
            deleted: Vec::new(),
            yields: 0,
            commands: Vec::new(),
            status_writes: 0,
            label_writes: 0,
            route_writes: 0,
            reads: 0,
            desired: Desired {
                replicas: u32::from(replicas),
                write_quorum: u32::from(replicas > 1),
                unreachable_after: Duration::from_secs(3),
                ..crate::core::valid::desired_from_running(1)
            },
            crash_at: None,
            pause_at: None,
            in_hand: None,
            cuts: Vec::new(),
            effects: 0,
            crashed: false,
            keep_write: false,
            late_write: None,
            failing_confirmations: 0,
            lose_reply: false,
            strangers: 0,
            confirmed: BTreeSet::new(),
            broken: Vec::new(),
            promoted_in: BTreeMap::new(),
            held: Vec::new(),
            next_write: 0,
            term: 0,
            queue: VecDeque::new(),
            sequence: 0,
            links: BTreeMap::new(),
            next_link: 0,
        };
        stage.start_operator();
        stage
    }

    /// A bootstrapped cluster in which everything is in sync and the write quorum is up.
    pub fn settled(replicas: u8) -> Self {
        let mut stage = Self::new(replicas);
        stage.run(Duration::from_secs(3));
        stage.write(10);
        stage.run(Duration::from_secs(8));
        stage.told.clear();
        stage.commands.clear();
        (stage.status_writes, stage.route_writes, stage.effects) = (0, 0, 0);
        stage
    }

    /// A new operator process takes the lease.
    pub fn start_operator(&mut self) {
        self.links.clear();
        self.depose_operator();
    }

    /// Another operator takes the lease; the connections of the one before stay until they are cut. Returns what
    /// the one before was about to change.
    pub fn depose_operator(&mut self) -> Vec<Effect> {
        self.term += 1;
        self.crashed = false;
        let under_way = self
            .queue
            .drain(..)
            .filter_map(|(_, _, due)| match due {
                Due::Effect(effect) if is_changing(&effect) => Some(effect),
                _ => None,
            })
            .collect();
        self.operator = Supervisor::new("cluster-uid".to_owned());
        self.lease_holder = format!("op-{}", self.term);
        let desired = self.desired.clone();
        self.feed(Event::Desired(desired));
        self.feed(Event::RouteSeen(self.slice.clone()));
        self.feed(Event::ReadsSeen(self.reads_slice.clone()));
        self.list_pods();
        let term = self.lease_holder.clone();
        self.feed(Event::Leading { term });
        under_way
    }

    /// A late effect of an operator that does not lead any more; nobody hears the answer.
    pub fn land(&mut self, effect: Effect) {
        let before = self.queue.len();
        self.carry_out(effect);
        self.queue.truncate(before);
    }

    pub fn list_pods(&mut self) {
        let pods = self.nodes.iter().filter(|node| node.listed).map(pod_fact).collect();
        self.feed(Event::Pods(pods));
    }

    /// The switchover annotation is set or removed.
    pub fn ask_for_switch(&mut self, wanted: Option<&str>) {
        self.desired.switchover = wanted.map(str::to_owned);
        let desired = self.desired.clone();
        self.feed(Event::Desired(desired));
    }

    pub fn record(&self) -> Supervision {
        self.status.clone().unwrap_or_default().supervision.unwrap_or_default()
    }

    pub fn node(&mut self, name: &str) -> &mut Node {
        self.nodes.iter_mut().find(|node| node.name == name).unwrap()
    }

    pub fn master(&self) -> String {
        self.record().master.map(|master| master.pod).unwrap_or_default()
    }

    /// Servers that say they are master.
    pub fn masters(&self) -> Vec<String> {
        self.nodes
            .iter()
            .filter(|node| node.up && node.role == Role::Master)
            .map(|node| node.name.clone())
            .collect()
    }

    pub fn reasons(&self) -> Vec<&'static str> {
        self.told.iter().map(|notice| notice.reason).collect()
    }

    pub fn condition(&self, kind: &str) -> (String, String) {
        let status = self.status.clone().unwrap_or_default();
        let condition = status.conditions.into_iter().find(|condition| condition.type_ == kind).unwrap();
        (condition.status, condition.reason)
    }

    /// Two servers that take writes at once are a split brain.
    fn check(&mut self) {
        let accepting: Vec<String> = (0..self.nodes.len())
            .filter(|index| self.accepts(*index))
            .map(|index| format!("{} (quorum {})", self.nodes[index].name, self.nodes[index].quorum))
            .collect();
        if accepting.len() > 1 {
            self.broke(format!("two servers take writes: {}", accepting.join(", ")));
        }
    }

    fn broke(&mut self, rule: String) {
        if !self.broken.contains(&rule) {
            self.broken.push(rule);
        }
    }

    pub fn run(&mut self, time: Duration) {
        let end = self.now + time;
        while !self.crashed {
            let queued = self.queue.iter().map(|(at, seq, _)| (*at, *seq)).min();
            let wake = self.operator.wake_at();
            let next = [queued.map(|(at, _)| at), wake, Some(self.now + 5 * MS)]
                .into_iter()
                .flatten()
                .min()
                .unwrap();
            if next.max(self.now) > end {
                break;
            }
            self.now = next.max(self.now);
            self.wake();
            self.replicate();
            self.check();
            match queued.filter(|(at, _)| *at <= self.now) {
                Some((_, sequence)) => {
                    let index = self.queue.iter().position(|(_, seq, _)| *seq == sequence).unwrap();
                    match self.queue.remove(index).unwrap().2 {
                        Due::Event(event) => self.feed(event),
                        Due::Effect(effect) => self.carry_out(effect),
                    }
                }
                None if wake.is_some_and(|wake| wake <= self.now) => self.feed(Event::Tick),
                None => {}
            }
        }
        if !self.crashed {
            self.now = end;
        }
    }

    /// Time passes for the servers alone: nobody operates.
    pub fn pass(&mut self, time: Duration) {
        self.queue.clear();
        self.now += time;
        self.wake();
        self.replicate();
        self.check();
    }

    /// Run until it holds; false after `limit`.
    pub fn until(&mut self, limit: Duration, holds: impl Fn(&Stage) -> bool) -> bool {
        let end = self.now + limit;
        while !holds(self) {
            if self.now >= end || self.crashed {
                return false;
            }
            self.run(MS);
        }
        true
    }

    pub fn feed(&mut self, event: Event) {
        let now = Now { mono: self.now, wall: Timestamp::UNIX_EPOCH + self.now };
        for effect in self.operator.handle(now, event) {
            if is_changing(&effect) {
                self.effects += 1;
                if self.pause_at == Some(self.effects) {
                    self.in_hand = Some(effect);
                    self.crashed = true;
                    return;
                }
                if self.crash_at == Some((self.effects, false)) {
                    self.crashed = true;
                    return;
                }
                if self.crash_at == Some((self.effects, true)) {
                    self.carry_out(effect);
                    self.crashed = true;
                    return;
                }
            }
            let delay = if matches!(
                effect,
                Effect::WriteStatus { .. } | Effect::Route { .. } | Effect::RouteReads { .. }
            ) {
                2 * MS
            } else {
                MS / 4
            };
            self.later(delay, Due::Effect(effect));
        }
    }

    fn later(&mut self, delay: Duration, due: Due) {
        self.sequence += 1;
        self.queue.push_back((self.now + delay, self.sequence, due));
    }

    fn answer(&mut self, event: Event) {
        self.later(MS / 4, Due::Event(event));
    }
}

fn pod_fact(node: &Node) -> PodFact {
    PodFact {
        name: node.name.clone(),
        uid: node.uid.clone(),
        ordinal: node.name.chars().last().unwrap().to_digit(10).unwrap(),
        ip: Some(node.ip),
        node: Some(format!("node-of-{}", node.name)),
        node_state: node.place,
        terminating: node.terminating,
        role_label: node.label.clone(),
    }
}

/// Effects between which a crash makes a difference.
pub fn is_changing(effect: &Effect) -> bool {
    effect.is_change() || matches!(effect, Effect::Label { .. })
}
