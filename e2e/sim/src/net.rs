//! Machines and the ways between them: cuts in one or both directions, black holes and resets.
//!
//! A connection is a pair of ordered pipes. What is sent while the way is cut is sent again some time after it is open:
//! TCP gives nothing up within the minutes of a simulated fault. Who gives up is whoever has a timeout of its own.

use crate::rng::Rng;
use crate::setup::Machine;
use crate::time::{MS, SECOND, Time};
use crate::world::{Ev, World};

/// Number of a connection; never used again.
pub type ConnId = usize;

/// Toward the server, or back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    Forth,
    Back,
}

impl Way {
    fn index(self) -> usize {
        usize::from(self == Self::Back)
    }
}

/// Who dialled.
#[derive(Clone, Debug)]
pub enum Peer {
    Operator { op: usize, life: u32, uid: String, link: u64 },
    Replica { pid: usize },
    Client { client: usize, turn: u64 },
}

/// One TCP connection to a server process.
#[derive(Clone, Debug)]
pub struct Conn {
    pub peer: Peer,
    /// The server process.
    pub pid: usize,
    /// Of the peer and of the server.
    machines: [Machine; 2],
    /// As the peer and the server see it.
    pub open: [bool; 2],
    last: [Time; 2],
    held: [u32; 2],
    /// What was to arrive later is lost with the process that sent it.
    lost_after: [Option<Time>; 2],
}

/// What goes over connections.
#[derive(Clone, Debug)]
pub enum Msg {
    /// The other side closed, or the connection was reset.
    Fin,
    Ask(Box<crate::operator::Ask>),
    Answer(Box<crate::operator::Answer>),
    Sync(crate::redis::feed::Sync),
    Write {
        write: u32,
        wait: bool,
    },
    Written {
        write: u32,
        ok: bool,
    },
}

/// A message that waits for its way to open.
#[derive(Clone, Debug)]
struct Held {
    conn: ConnId,
    way: Way,
    since: Time,
    msg: Msg,
}

/// The network.
#[derive(Clone, Debug)]
pub struct Net {
    machines: usize,
    /// Cuts in force, by from and to.
    cuts: Vec<u32>,
    /// Of these, the ones at which somebody answers with a reset.
    resets: Vec<u32>,
    down: Vec<u32>,
    held: Vec<Held>,
    /// Since when each way is open or cut.
    since: Vec<Time>,
}

impl Net {
    pub fn new(machines: usize) -> Self {
        Self {
            machines,
            cuts: vec![0; machines * machines],
            resets: vec![0; machines * machines],
            down: vec![0; machines],
            held: Vec::new(),
            since: vec![0; machines * machines],
        }
    }

    fn way(&self, from: Machine, to: Machine) -> usize {
        from * self.machines + to
    }

    /// Do packets get from here to there?
    pub fn is_open(&self, from: Machine, to: Machine) -> bool {
        self.down[from] == 0 && self.down[to] == 0 && (from == to || self.cuts[self.way(from, to)] == 0)
    }

    /// And back?
    pub fn is_open_both(&self, one: Machine, other: Machine) -> bool {
        self.is_open(one, other) && self.is_open(other, one)
    }

    /// Open in both directions for this long.
    pub fn is_open_since(&self, one: Machine, other: Machine, since: Time) -> bool {
        self.is_open_both(one, other)
            && self.since[self.way(one, other)] <= since
            && self.since[self.way(other, one)] <= since
    }

    /// Was anything cut or mended between them since then?
    pub fn changed_since(&self, one: Machine, other: Machine, since: Time) -> bool {
        self.since[self.way(one, other)] > since || self.since[self.way(other, one)] > since
    }

    pub fn is_refused(&self, from: Machine, to: Machine) -> bool {
        self.down[from] == 0 && self.resets[self.way(from, to)] > 0
    }

    pub fn is_down(&self, machine: Machine) -> bool {
        self.down[machine] > 0
    }
}

impl Conn {
    fn ends(&self, way: Way) -> (Machine, Machine) {
        match way {
            Way::Forth => (self.machines[0], self.machines[1]),
            Way::Back => (self.machines[1], self.machines[0]),
        }
    }

    pub fn is_open(&self) -> bool {
        self.open[0] && self.open[1]
    }
}

/// How long a packet takes.
fn delay(rng: &mut Rng, same: bool) -> Time {
    if same { rng.range(20, 60) } else { rng.range(120, 600) }
}

impl World {
    /// A new connection between two machines; whether it can be made is the caller's question.
    pub fn connect(&mut self, peer: Peer, from: Machine, pid: usize) -> ConnId {
        let machines = [from, self.processes[pid].machine];
        self.conns.push(Conn {
            peer,
            pid,
            machines,
            open: [true, true],
            last: [0, 0],
            held: [0, 0],
            lost_after: [None, None],
        });
        let conn = self.conns.len() - 1;
        self.processes[pid].conns.push(conn);
        conn
    }

    pub fn send(&mut self, conn: ConnId, way: Way, msg: Msg) {
        self.send_later(conn, way, 0, msg);
    }

    /// Sent now, ready after `extra`; later messages of the same direction do not overtake it.
    pub fn send_later(&mut self, conn: ConnId, way: Way, extra: Time, msg: Msg) {
        let (from, to) = self.conns[conn].ends(way);
        let index = way.index();
        if self.conns[conn].held[index] > 0 || !self.net.is_open(from, to) {
            self.conns[conn].held[index] += 1;
            self.net.held.push(Held { conn, way, since: self.now, msg });
            return;
        }
        let travel = delay(&mut self.rng, from == to);
        let at = (self.now + travel + extra).max(self.conns[conn].last[index] + 1);
        self.conns[conn].last[index] = at;
        self.queue.push(at, Ev::Deliver { conn, way, msg });
    }

    /// Was it lost with its sender?
    pub fn is_lost(&self, conn: ConnId, way: Way, msg: &Msg) -> bool {
        let lost = self.conns[conn].lost_after[way.index()].is_some_and(|after| self.now > after);
        lost && !matches!(msg, Msg::Fin)
    }

    /// One side closes.
    pub fn close(&mut self, conn: ConnId, by_server: bool) {
        let side = usize::from(by_server);
        if std::mem::replace(&mut self.conns[conn].open[side], false) && self.conns[conn].open[1 - side] {
            let way = if by_server { Way::Back } else { Way::Forth };
            self.send(conn, way, Msg::Fin);
        }
    }

    /// The server process of this connection died. What it had sent may still arrive, or not.
    pub fn lose_tail(&mut self, conn: ConnId) {
        let last = self.conns[conn].last[1];
        let keep = if self.rng.percent(50) { last } else { self.rng.range(self.now, last.max(self.now)) };
        self.conns[conn].lost_after[1] = Some(keep);
    }

    /// Cuts one direction.
    pub fn cut(&mut self, from: Machine, to: Machine, reset: bool) {
        let way = self.net.way(from, to);
        if self.net.cuts[way] == 0 {
            self.net.since[way] = self.now;
        }
        self.net.cuts[way] += 1;
        self.net.resets[way] += u32::from(reset);
        if reset {
            for conn in 0..self.conns.len() {
                let (one, other) = self.conns[conn].ends(Way::Forth);
                if (from, to) == (one, other) || (from, to) == (other, one) {
                    self.reset(conn);
                }
            }
        }
    }

    /// Both sides are told that the connection is over.
    fn reset(&mut self, conn: ConnId) {
        let at = self.now + MS;
        for way in [Way::Forth, Way::Back] {
            if self.conns[conn].open[1 - way.index()] {
                self.queue.push(at, Ev::Deliver { conn, way, msg: Msg::Fin });
            }
        }
    }

    pub fn mend(&mut self, from: Machine, to: Machine, reset: bool) {
        let way = self.net.way(from, to);
        self.net.cuts[way] = self.net.cuts[way].saturating_sub(1);
        self.net.resets[way] = self.net.resets[way].saturating_sub(u32::from(reset));
        if self.net.cuts[way] == 0 {
            self.net.since[way] = self.now;
        }
        self.flush_held();
    }

    pub fn machine_down(&mut self, machine: Machine) {
        self.net.down[machine] += 1;
        self.touch(machine);
    }

    pub fn machine_up(&mut self, machine: Machine) {
        self.net.down[machine] = self.net.down[machine].saturating_sub(1);
        self.touch(machine);
        if self.net.down[machine] > 0 {
            return;
        }
        // Whoever sends to what was there is answered with a reset.
        for conn in 0..self.conns.len() {
            let [one, other] = self.conns[conn].machines;
            if other == machine && self.conns[conn].open[0] && !self.processes[self.conns[conn].pid].alive {
                let at = self.now + self.rng.span(10 * MS, 5 * SECOND);
                if self.net.is_open_both(one, other) {
                    self.queue.push(at, Ev::Deliver { conn, way: Way::Back, msg: Msg::Fin });
                }
            }
        }
        self.flush_held();
    }

    fn touch(&mut self, machine: Machine) {
        for other in 0..self.net.machines {
            let (forth, back) = (self.net.way(machine, other), self.net.way(other, machine));
            self.net.since[forth] = self.now;
            self.net.since[back] = self.now;
        }
    }

    /// What waited is sent again, when the sender's back-off says so.
    fn flush_held(&mut self) {
        let mut kept = Vec::new();
        let mut resumed: Vec<(ConnId, Way, Time)> = Vec::new();
        for held in std::mem::take(&mut self.net.held) {
            let (from, to) = self.conns[held.conn].ends(held.way);
            if !self.net.is_open(from, to) {
                kept.push(held);
                continue;
            }
            let known = resumed.iter().find(|(conn, way, _)| (*conn, *way) == (held.conn, held.way));
            let at = if let Some((_, _, at)) = known {
                *at
            } else {
                let silence = (self.now - held.since).clamp(200 * MS, 60 * SECOND);
                let at = self.now + self.rng.span(MS, silence);
                resumed.push((held.conn, held.way, at));
                at
            };
            let conn = &mut self.conns[held.conn];
            let index = held.way.index();
            conn.held[index] -= 1;
            let at = at.max(conn.last[index] + 1);
            conn.last[index] = at;
            self.queue.push(at, Ev::Deliver { conn: held.conn, way: held.way, msg: held.msg });
        }
        self.net.held = kept;
    }
}
