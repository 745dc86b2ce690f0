//! A small stage for the state machine: three fake servers, a fake API server, virtual time.
//!
//! It answers effects the way the real ones do, with short delays, in one deterministic order. The simulator is
//! the place for everything wilder.

use std::collections::{BTreeMap, VecDeque};
use std::net::IpAddr;
use std::time::Duration;

use k8s_openapi::jiff::Timestamp;

use crate::api::status::{RedisClusterStatus, Supervision};
use crate::core::event::{
    CommandOutcome, DialOutcome, Effect, Event, Expect, Knock, Notice, ProbeOutcome, RoleCommand, Stored,
    WriteOutcome,
};
use crate::core::facts::{
    AttachedReplica, Desired, Info, LinkId, Mono, Now, PLACEHOLDER_HOST, PodFact, REDIS_PORT, Role, RouteFact,
};
use crate::core::supervisor::Supervisor;

pub const MS: Duration = Duration::from_millis(1);

/// One pod and its server.
#[expect(clippy::struct_excessive_bools, reason = "each is one independent fact of a fake server")]
#[derive(Clone, Debug)]
pub struct Node {
    pub name: String,
    pub uid: String,
    pub ip: IpAddr,
    pub listed: bool,
    pub up: bool,
    pub frozen: bool,
    /// The operator's packets get lost.
    pub cut_off: bool,
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
}

impl Node {
    fn new(ordinal: u8) -> Self {
        Self {
            name: format!("cache-{ordinal}"),
            uid: format!("uid-{ordinal}"),
            ip: IpAddr::from([10, 0, 0, ordinal + 1]),
            listed: true,
            up: true,
            frozen: false,
            cut_off: false,
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
pub struct Stage {
    pub now: Mono,
    pub nodes: Vec<Node>,
    pub operator: Supervisor,
    pub status: Option<RedisClusterStatus>,
    pub resource_version: u64,
    pub api_up: bool,
    pub slice: Option<RouteFact>,
    pub lease_holder: String,
    pub told: Vec<Notice>,
    pub commands: Vec<(String, RoleCommand)>,
    pub status_writes: u32,
    pub route_writes: u32,
    pub reads: u32,
    pub desired: Desired,
    /// The operator dies right before (false) or after (true) the n-th changing effect.
    pub crash_at: Option<(u32, bool)>,
    /// Pairs of pods whose servers cannot reach each other.
    pub cuts: Vec<(String, String)>,
    pub effects: u32,
    pub crashed: bool,
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
            lease_holder: String::new(),
            told: Vec::new(),
            commands: Vec::new(),
            status_writes: 0,
            route_writes: 0,
            reads: 0,
            desired: Desired {
                replicas: u32::from(replicas),
                write_quorum: u32::from(replicas > 1),
                unreachable_after: Duration::from_secs(3),
            },
            crash_at: None,
            cuts: Vec::new(),
            effects: 0,
            crashed: false,
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
        self.term += 1;
        self.crashed = false;
        self.queue.clear();
        self.links.clear();
        self.operator = Supervisor::new("cluster-uid".to_owned());
        self.lease_holder = format!("op-{}", self.term);
        let desired = self.desired.clone();
        self.feed(Event::Desired(desired));
        self.feed(Event::RouteSeen(self.slice.clone()));
        self.list_pods();
        let term = self.lease_holder.clone();
        self.feed(Event::Leading { term });
    }

    pub fn list_pods(&mut self) {
        let pods = self.nodes.iter().filter(|node| node.listed).map(pod_fact).collect();
        self.feed(Event::Pods(pods));
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

    /// The process dies without a word. Connections end, replicas notice.
    pub fn kill(&mut self, name: &str) {
        let now = self.now;
        let node = self.node(name);
        node.up = false;
        let (uid, ip) = (node.uid.clone(), node.ip);
        self.drop_replicas_of(ip, now);
        if let Some((link, _)) = self.links.remove(&uid) {
            self.later(MS, Due::Event(Event::LinkLost { uid, link }));
        }
    }

    /// The container starts again: fenced, with or without its data.
    pub fn restart(&mut self, name: &str, keep_data: bool) {
        let node = self.node(name);
        let (run, keys) = (node.run + 1, if keep_data { node.keys } else { 0 });
        *node = Node {
            run,
            keys,
            replid: format!("boot-{name}-{run}"),
            name: node.name.clone(),
            uid: node.uid.clone(),
            ip: node.ip,
            label: node.label.clone(),
            promotions: node.promotions,
            full_syncs: node.full_syncs,
            ..Node::new(0)
        };
    }

    /// The pod object is deleted, and its process with it; a new pod with the same name takes its place.
    pub fn replace_pod(&mut self, name: &str) {
        self.kill(name);
        let node = self.node(name);
        let ordinal = node.name.chars().last().unwrap().to_digit(10).unwrap();
        let fresh = Node::new(u8::try_from(ordinal).unwrap());
        let generation = node.uid.len();
        *node = Node {
            uid: format!("{}x", node.uid),
            ip: IpAddr::from([10, 0, u8::try_from(generation).unwrap(), u8::try_from(ordinal + 1).unwrap()]),
            run: node.run + 100,
            replid: format!("boot-{name}-{}", node.run + 100),
            promotions: node.promotions,
            full_syncs: node.full_syncs,
            ..fresh
        };
        self.run(10 * MS);
        self.list_pods();
    }

    /// The two servers lose each other, and the replica of the two notices.
    pub fn cut(&mut self, one: &str, other: &str) {
        self.cuts.push((one.to_owned(), other.to_owned()));
        let now = self.now;
        for (name, peer) in [(one, other), (other, one)] {
            let peer = self.node(peer).ip.to_string();
            let node = self.node(name);
            if node.link_up && node.master.0 == peer {
                node.link_up = false;
                node.link_lost = Some(now);
            }
        }
    }

    fn is_cut(&self, one: &str, other: &str) -> bool {
        self.cuts.iter().any(|(a, b)| (a == one && b == other) || (a == other && b == one))
    }

    pub fn write(&mut self, count: u64) {
        let Some(index) = self.nodes.iter().position(|node| node.up && node.role == Role::Master) else {
            return;
        };
        self.nodes[index].keys += count;
        self.nodes[index].offset += i64::try_from(count).unwrap();
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
            self.replicate();
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
            let delay = if matches!(effect, Effect::WriteStatus { .. } | Effect::Route { .. }) {
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

    fn carry_out(&mut self, effect: Effect) {
        let now = self.now;
        match effect {
            Effect::Dial { uid, ip } => {
                let Some(node) = self.nodes.iter().find(|node| node.ip == ip) else {
                    return self.later(
                        300 * MS,
                        Due::Event(Event::Dialed { uid, outcome: DialOutcome::Unroutable }),
                    );
                };
                if node.cut_off {
                    return self.later(
                        300 * MS,
                        Due::Event(Event::Dialed { uid, outcome: DialOutcome::Unroutable }),
                    );
                }
                let outcome = if !node.up {
                    DialOutcome::Refused
                } else if node.frozen {
                    DialOutcome::Silent
                } else {
                    self.next_link += 1;
                    let (link, run) = (self.next_link, node.run);
                    let info = Box::new(self.info(&uid).unwrap());
                    self.links.insert(uid.clone(), (link, run));
                    DialOutcome::Connected { link, asked_at: now, info }
                };
                self.answer(Event::Dialed { uid, outcome });
            }
            Effect::Knock { uid, ip } => {
                let outcome = match self.nodes.iter().find(|node| node.ip == ip) {
                    Some(node) if node.cut_off => Knock::Unroutable,
                    Some(node) if node.up => Knock::Accepted,
                    Some(_) => Knock::Refused,
                    None => Knock::Unroutable,
                };
                self.answer(Event::Knocked { uid, outcome });
            }
            Effect::HangUp { uid } => {
                self.links.remove(&uid);
            }
            Effect::Probe { uid, link } => {
                if self.links.get(&uid).is_some_and(|(open, _)| *open == link)
                    && let Some(info) = self.info(&uid)
                {
                    let outcome = ProbeOutcome::Answered(Box::new(info));
                    self.answer(Event::Probed { uid, link, asked_at: now.saturating_sub(MS / 4), outcome });
                }
            }
            Effect::Command { ticket, uid, link, command } => {
                let alive =
                    self.links.get(&uid).is_some_and(|(open, _)| *open == link) && self.info(&uid).is_some();
                let outcome = if alive {
                    let name = self.nodes.iter().find(|node| node.uid == uid).unwrap().name.clone();
                    self.commands.push((name, command.clone()));
                    self.obey(&uid, &command);
                    CommandOutcome::Done(Box::new(self.info(&uid).unwrap()))
                } else {
                    CommandOutcome::Lost("connection closed".to_owned())
                };
                self.answer(Event::Replied { ticket, outcome });
            }
            Effect::WriteStatus { ticket, expect, status } => {
                let outcome = self.write_status(&expect, *status);
                self.answer(Event::StatusWritten { ticket, outcome });
            }
            Effect::ReadObject => {
                self.reads += 1;
                if self.api_up {
                    let stored = Stored {
                        uid: "cluster-uid".to_owned(),
                        resource_version: self.resource_version.to_string(),
                        status: self.status.clone(),
                    };
                    self.answer(Event::Stored(Box::new(stored)));
                }
            }
            Effect::CheckLease { ticket } => {
                self.later(MS, Due::Event(Event::LeaseChecked { ticket, held: self.api_up }));
            }
            Effect::ConfirmPod { ticket, uid, .. } => {
                let ip = self.nodes.iter().find(|node| node.uid == uid && node.listed).map(|node| node.ip);
                self.answer(Event::PodConfirmed { ticket, ip });
            }
            Effect::Route { ticket, endpoint, epoch } => {
                let outcome = if self.api_up {
                    self.route_writes += 1;
                    self.slice = Some(RouteFact {
                        ip: endpoint.as_ref().map(|endpoint| endpoint.ip.to_string()),
                        uid: endpoint.map(|endpoint| endpoint.uid),
                        epoch,
                    });
                    WriteOutcome::Written
                } else {
                    WriteOutcome::Unknown("timed out".to_owned())
                };
                self.answer(Event::RouteWritten { ticket, outcome });
            }
            Effect::Label { uid, role, .. } => {
                if let Some(node) = self.nodes.iter_mut().find(|node| node.uid == uid) {
                    node.label = role.map(str::to_owned);
                }
                self.list_pods();
            }
            Effect::Tell(notice) => self.told.push(notice),
            Effect::Measure(_) => {}
        }
    }

    fn write_status(&mut self, expect: &Expect, status: RedisClusterStatus) -> WriteOutcome {
        if !self.api_up {
            return WriteOutcome::Unknown("timed out".to_owned());
        }
        let record = self.record();
        let holds = match expect {
            Expect::First { resource_version, .. } => *resource_version == self.resource_version.to_string(),
            Expect::At { epoch, plan, .. } => {
                record.epoch == *epoch && record.plan.as_ref().map(|plan| plan.id.clone()) == *plan
            }
        };
        if !holds {
            return WriteOutcome::Conflict;
        }
        self.status_writes += 1;
        self.resource_version += 1;
        self.status = Some(status);
        WriteOutcome::Written
    }

    fn obey(&mut self, uid: &str, command: &RoleCommand) {
        let now = self.now;
        let index = self.nodes.iter().position(|node| node.uid == uid).unwrap();
        let ip = self.nodes[index].ip;
        let node = &mut self.nodes[index];
        match command {
            RoleCommand::Detach | RoleCommand::Demote => {
                node.serving = false;
                node.role = Role::Replica;
                node.master = (PLACEHOLDER_HOST.to_owned(), 0);
                if node.link_up {
                    node.link_lost = Some(now);
                }
                node.link_up = false;
                if matches!(command, RoleCommand::Demote) {
                    node.positioned = true;
                }
            }
            RoleCommand::Promote { write_quorum } => {
                if node.role == Role::Replica {
                    node.promotions += 1;
                    node.replid2 = node.replid.clone();
                    node.second_offset = node.offset + 1;
                    node.replid = format!("id-{}-{}-{}", node.name, node.run, node.promotions);
                    node.backlog = node.positioned;
                }
                node.role = Role::Master;
                node.link_up = false;
                node.quorum = *write_quorum;
            }
            RoleCommand::Serve => node.serving = true,
            RoleCommand::Follow { ip: master, port, .. } => {
                node.serving = false;
                node.role = Role::Replica;
                node.quorum = 0;
                node.link_up = false;
                node.master = (master.to_string(), *port);
                self.drop_replicas_of(ip, now);
            }
            RoleCommand::SetWriteQuorum(quorum) => node.quorum = *quorum,
        }
    }

    fn drop_replicas_of(&mut self, ip: IpAddr, now: Mono) {
        for node in &mut self.nodes {
            if node.link_up && node.master.0 == ip.to_string() {
                node.link_up = false;
                node.link_lost = Some(now);
            }
        }
    }

    /// Replicas attach, sync and stream.
    fn replicate(&mut self) {
        for index in 0..self.nodes.len() {
            let replica = &self.nodes[index];
            if !replica.up || replica.frozen || replica.role == Role::Master {
                continue;
            }
            let (host, name) = (replica.master.0.clone(), replica.name.clone());
            let Some(source) = self.nodes.iter().position(|node| {
                !self.is_cut(&node.name, &name)
                    && node.ip.to_string() == host
                    && node.up
                    && !node.frozen
                    && node.role == Role::Master
                    && node.serving
            }) else {
                continue;
            };
            if !self.nodes[source].backlog {
                let node = &mut self.nodes[source];
                node.backlog = true;
                node.replid = format!("{}-attached", node.replid);
                node.replid2 = "0".to_owned();
                node.offset += 1;
            }
            let source = self.nodes[source].clone();
            let replica = &mut self.nodes[index];
            if !replica.link_up {
                let partial = replica.positioned
                    && (replica.replid == source.replid
                        || (replica.replid == source.replid2 && replica.offset < source.second_offset));
                replica.full_syncs += u32::from(!partial);
            }
            replica.link_up = true;
            replica.link_lost = None;
            replica.positioned = true;
            replica.replid.clone_from(&source.replid);
            replica.replid2.clone_from(&source.replid2);
            replica.second_offset = source.second_offset;
            replica.offset = source.offset;
            replica.keys = source.keys;
        }
    }

    fn info(&self, uid: &str) -> Option<Info> {
        let node = self.nodes.iter().find(|node| node.uid == uid && node.answers())?;
        if self.links.get(uid).is_some_and(|(_, run)| *run != node.run) {
            return None;
        }
        let attached: Vec<AttachedReplica> = self
            .nodes
            .iter()
            .filter(|other| other.up && other.link_up && other.master.0 == node.ip.to_string())
            .map(|other| AttachedReplica {
                ip: other.ip.to_string(),
                port: REDIS_PORT,
                state: "online".to_owned(),
                offset: other.offset,
                lag: 0,
            })
            .collect();
        let replica = node.role == Role::Replica;
        Some(Info {
            run_id: node.run_id(),
            redis_version: "7.0.15".to_owned(),
            uptime_seconds: 1,
            role: node.role,
            master_host: replica.then(|| node.master.0.clone()),
            master_port: node.master.1,
            link_up: node.link_up,
            link_down_since: node
                .link_lost
                .map_or(Some(-1), |at| i64::try_from(self.now.saturating_sub(at).as_secs()).ok()),
            last_io: Some(if node.link_up { 0 } else { -1 }),
            sync_in_progress: false,
            replid: node.replid.clone(),
            replid2: node.replid2.clone(),
            second_offset: node.second_offset,
            master_offset: node.offset,
            replica_offset: replica.then_some(if node.positioned { node.offset } else { 1 }),
            good_replicas: (node.quorum > 0).then(|| u32::try_from(attached.len()).unwrap()),
            attached,
            loading: false,
            keys: node.keys,
        })
    }
}

fn pod_fact(node: &Node) -> PodFact {
    PodFact {
        name: node.name.clone(),
        uid: node.uid.clone(),
        ordinal: node.name.chars().last().unwrap().to_digit(10).unwrap(),
        ip: Some(node.ip),
        node: Some("node".to_owned()),
        terminating: false,
        role_label: node.label.clone(),
    }
}

/// Effects between which a crash makes a difference.
pub fn is_changing(effect: &Effect) -> bool {
    matches!(
        effect,
        Effect::Command { .. } | Effect::WriteStatus { .. } | Effect::Route { .. } | Effect::Label { .. }
    )
}
