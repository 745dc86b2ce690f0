//! The world: all parts, one queue, one clock.

use std::collections::BTreeMap;
use std::net::IpAddr;

use redis_ha_operator::core::event::{DialOutcome, Event};
use redis_ha_operator::core::supervisor::Supervisor;

use crate::checkers::Checks;
use crate::clients::{Client, Write};
use crate::counts::Counts;
use crate::faults::Mend;
use crate::history::History;
use crate::kube::api::Api;
use crate::kube::calls::{Reply, Request};
use crate::kube::kubelet::Pod;
use crate::kube::watch::News;
use crate::net::{Conn, ConnId, Msg, Net, Peer, Way};
use crate::operator::elector::Elector;
use crate::operator::{Known, Operator};
use crate::points::Points;
use crate::queue::Queue;
use crate::redis::life::Disk;
use crate::redis::process::{Process, ReplId};
use crate::rng::Rng;
use crate::schedule::Strike;
use crate::setup::{Machine, Setup};
use crate::story::{Detail, Story};
use crate::time::{MS, SECOND, Time};

/// Pods of one cluster, ever: ordinals above have no volume.
const ORDINALS: usize = 9;

/// What happens.
#[derive(Clone, Debug)]
pub enum Ev {
    Deliver { conn: ConnId, way: Way, msg: Msg },
    // Servers.
    Cron { pid: usize, beat: u32 },
    Loaded { pid: usize },
    PauseOver { pid: usize },
    ScriptSpeaks { pid: usize },
    // Operators.
    Wake { op: usize, life: u32 },
    Feed { op: usize, life: u32, event: Box<Event> },
    DialEnds { op: usize, life: u32, uid: String, link: u64, outcome: DialOutcome },
    Greeting { op: usize, life: u32, uid: String, link: u64 },
    GiveUp { op: usize, life: u32, uid: String, link: u64 },
    Elect { op: usize, life: u32, round: u64 },
    Yield { op: usize, life: u32 },
    Label { op: usize, life: u32, uid: String, role: Option<&'static str> },
    ReadAgain { op: usize, life: u32, number: u64 },
    Resume { op: usize, life: u32 },
    // Kubernetes.
    CallArrives { id: u64, lost: bool },
    CallOver { id: u64, reply: Option<Box<Reply>> },
    Watch { op: usize, life: u32, news: Box<News> },
    List { op: usize, life: u32 },
    Relist { op: usize, life: u32 },
    CreatePod { ordinal: u32 },
    Start { pod: usize },
    Stop { pod: usize },
    PodGone { pod: usize },
    CheckNode { machine: Machine },
    Proxy { ip: Option<IpAddr> },
    Control,
    // Clients and faults.
    Client { client: usize },
    Strike(usize),
    Mend(Box<Mend>),
}

/// Everything.
pub struct World {
    pub setup: Setup,
    pub now: Time,
    /// Quiet time that was jumped over.
    pub skipped: Time,
    /// The part of it that the operators' clocks show: they were suspended, as it looks to them.
    pub jumped: Time,
    pub rng: Rng,
    pub queue: Queue<Ev>,
    pub net: Net,
    pub conns: Vec<Conn>,
    pub processes: Vec<Process>,
    pub pods: Vec<Pod>,
    /// What lies on each ordinal's volume.
    pub volumes: Vec<Disk>,
    pub api: Api,
    pub requests: BTreeMap<u64, Request>,
    pub requests_sent: u64,
    pub operators: Vec<Operator>,
    pub clients: Vec<Client>,
    pub history: History,
    pub writes: Vec<Write>,
    pub strikes: Vec<Strike>,
    pub checks: Checks,
    pub story: Story,
    pub counts: Counts,
    pub points: Points,
    /// Faults that are not mended yet.
    pub broken_things: u32,
    pub mended_at: Time,
    /// At rest since.
    pub rest_since: Option<Time>,
    /// Somebody answered with resets for others, until then or a little later.
    pub reset_at: Option<Time>,
    /// Run ids of servers that somebody reconfigured by hand.
    pub by_hand: Vec<String>,
    pub last_write_due: Time,
    ids: ReplId,
    /// Of everything that happened.
    hash: u64,
}

impl World {
    pub fn new(seed: u64, setup: Setup, strikes: Vec<Strike>, detail: Detail) -> Self {
        let net = Net::new(setup.machines);
        let api = Api::new(setup.replicas, setup.profile);
        let clients = (0..3).map(|client| Client::new(setup.clients[client % 2])).collect();
        let operators = (0..2).map(|op| operator(op, &setup)).collect();
        let mut world = Self {
            now: 0,
            skipped: 0,
            jumped: 0,
            rng: Rng::new(seed, 3),
            queue: Queue::default(),
            net,
            conns: Vec::new(),
            processes: Vec::new(),
            pods: Vec::new(),
            volumes: vec![Disk::default(); ORDINALS],
            api,
            requests: BTreeMap::new(),
            requests_sent: 0,
            operators,
            clients,
            history: History::default(),
            writes: Vec::new(),
            strikes,
            checks: Checks::default(),
            story: Story::new(detail),
            counts: Counts::default(),
            points: Points::default(),
            broken_things: 0,
            mended_at: 0,
            rest_since: None,
            reset_at: None,
            by_hand: Vec::new(),
            last_write_due: 0,
            ids: 0,
            hash: 0xcbf2_9ce4_8422_2325,
            setup,
        };
        for op in 0..2 {
            world.start_operator(op);
        }
        for ordinal in 0..world.api.size {
            world.later(100 * MS, Ev::CreatePod { ordinal });
        }
        for client in 0..world.clients.len() {
            world.later(SECOND, Ev::Client { client });
        }
        world.later(SECOND, Ev::Control);
        world
    }

    pub fn new_id(&mut self) -> ReplId {
        self.ids += 1;
        self.ids
    }

    pub fn later(&mut self, after: Time, ev: Ev) {
        self.queue.push(self.now + after, ev);
    }

    /// Hash of all that happened: the same seed gives the same.
    pub fn hash(&self) -> u64 {
        self.hash
    }

    /// The next thing happens, unless it comes after `end`.
    pub fn step(&mut self, end: Time) -> bool {
        if self.queue.next_at().is_none_or(|at| at > end) {
            self.now = self.now.max(end);
            return false;
        }
        let Some((at, ev)) = self.queue.pop() else { return false };
        self.now = at;
        self.counts.events += 1;
        self.mix(at);
        self.mix(kind(&ev));
        self.happen(ev);
        self.check_always();
        true
    }

    pub fn run_until(&mut self, end: Time) {
        while self.checks.broken.is_empty() && self.step(end) {}
    }

    /// Part of the hash.
    pub fn mix(&mut self, value: u64) {
        self.hash = (self.hash ^ value).wrapping_mul(0x0100_0000_01b3);
    }

    /// What is addressed to a paused operator waits for it.
    fn addressee(&self, ev: &Ev) -> Option<usize> {
        match ev {
            Ev::Deliver { conn, way: Way::Back, .. } => match &self.conns[*conn].peer {
                Peer::Operator { op, .. } => Some(*op),
                _ => None,
            },
            Ev::Feed { op, .. }
            | Ev::DialEnds { op, .. }
            | Ev::Greeting { op, .. }
            | Ev::GiveUp { op, .. }
            | Ev::Elect { op, .. }
            | Ev::Yield { op, .. }
            | Ev::Label { op, .. }
            | Ev::ReadAgain { op, .. }
            | Ev::Watch { op, .. }
            | Ev::List { op, .. }
            | Ev::Relist { op, .. } => Some(*op),
            Ev::CallOver { id, .. } => self.requests.get(id).map(|request| request.op),
            _ => None,
        }
    }

    pub fn happen(&mut self, ev: Ev) {
        if let Some(op) = self.addressee(&ev)
            && self.operators[op].paused.is_some()
        {
            self.operators[op].inbox.push(ev);
            return;
        }
        match ev {
            Ev::Deliver { conn, way, msg } => self.arrive(conn, way, msg),
            Ev::Cron { pid, beat } => self.cron(pid, beat),
            Ev::Loaded { pid } => {
                let process = &mut self.processes[pid];
                process.loading = false;
                if process.alive {
                    self.attach(pid);
                }
            }
            Ev::PauseOver { pid } => self.after_pause(pid),
            Ev::ScriptSpeaks { pid } => self.script_speaks(pid),
            Ev::Wake { op, life } => self.wake(op, life),
            Ev::Feed { op, life, event } => {
                if self.lives(op, life) {
                    self.tell(op, *event);
                }
            }
            Ev::DialEnds { op, life, uid, link, outcome } => self.dial_ends(op, life, &uid, link, outcome),
            Ev::Greeting { op, life, uid, link } => self.greeting_late(op, life, &uid, link),
            Ev::GiveUp { op, life, uid, link } => self.give_up(op, life, &uid, link),
            Ev::Elect { op, life, round } => self.elect(op, life, round),
            Ev::Yield { op, life } => {
                if self.lives(op, life) {
                    self.yield_lease(op);
                }
            }
            Ev::Label { op, life, uid, role } => {
                if self.lives(op, life) && self.term(op).is_some() {
                    self.call(op, crate::kube::calls::Call::Label { uid, role }, 2 * SECOND);
                }
            }
            Ev::ReadAgain { op, life, number } => self.read_again(op, life, number),
            Ev::Resume { op, life } => self.resume_operator(op, life),
            Ev::CallArrives { id, lost } => self.call_arrives(id, lost),
            Ev::CallOver { id, reply } => self.call_over(id, reply.map(|reply| *reply)),
            Ev::Watch { op, life, news } => self.hear(op, life, *news),
            Ev::List { op, life } => self.list(op, life),
            Ev::Relist { op, life } => self.relist(op, life),
            Ev::CreatePod { ordinal } => self.create_pod(ordinal),
            Ev::Start { pod } => self.start_container(pod),
            Ev::Stop { pod } => self.stop_container(pod),
            Ev::PodGone { pod } => self.remove_pod(pod),
            Ev::CheckNode { machine } => self.check_node(machine),
            Ev::Proxy { ip } => self.proxy_changes(ip),
            Ev::Control => {
                self.control();
                self.later(SECOND, Ev::Control);
            }
            Ev::Client { client } => self.client_turn(client),
            Ev::Strike(number) => {
                let fault = self.strikes[number].fault;
                self.strike(fault);
            }
            Ev::Mend(mend) => self.mended(*mend),
        }
    }

    pub fn lives(&self, op: usize, life: u32) -> bool {
        self.operators[op].up && self.operators[op].life == life
    }

    fn arrive(&mut self, conn: ConnId, way: Way, msg: Msg) {
        if self.is_lost(conn, way, &msg) {
            return;
        }
        let (side, pid) = (usize::from(way == Way::Forth), self.conns[conn].pid);
        if !self.conns[conn].open[side] {
            return;
        }
        match (way, &self.conns[conn].peer) {
            (Way::Forth, _) => self.server_gets(pid, conn, msg),
            (Way::Back, Peer::Replica { pid }) => self.server_gets(*pid, conn, msg),
            (Way::Back, Peer::Operator { .. }) => self.operator_gets(conn, msg),
            (Way::Back, Peer::Client { .. }) => self.client_gets(conn, &msg),
        }
    }
}

fn operator(op: usize, setup: &Setup) -> Operator {
    Operator {
        name: ["operator-a", "operator-b"][op],
        machine: setup.operators[op],
        life: 0,
        up: false,
        core: Supervisor::new(crate::kube::api::CLUSTER_UID.to_owned()),
        paused: None,
        pause_next: None,
        hand: Vec::new(),
        inbox: Vec::new(),
        drift: setup.drift[op],
        stopped: 0,
        elector: Elector::new(String::new()),
        slots: BTreeMap::new(),
        next_link: 0,
        told: None,
        wake_at: None,
        last_tick: 0,
        reading: 0,
        route: Known::Nothing,
        reads: Known::Nothing,
        report: None,
        watch_at: 0,
        missed: false,
        leading_since: None,
    }
}

/// A number for each kind, for the hash.
fn kind(ev: &Ev) -> u64 {
    match ev {
        Ev::Deliver { conn, .. } => 1 << 32 | *conn as u64,
        Ev::Cron { pid, .. } => 2 << 32 | *pid as u64,
        Ev::Wake { op, .. } => 3 << 32 | *op as u64,
        Ev::Feed { op, .. } => 4 << 32 | *op as u64,
        Ev::CallArrives { id, .. } => 5 << 32 | *id,
        Ev::CallOver { id, .. } => 6 << 32 | *id,
        Ev::Client { client } => 7 << 32 | *client as u64,
        Ev::Strike(number) => 8 << 32 | *number as u64,
        _ => 9 << 32,
    }
}
