//! Servers begin, stop and go on, and end.

use std::net::IpAddr;

use redis_ha_operator::core::facts::Role;
use redis_ha_operator::core::mechanism::{Mechanism, on};

use crate::history::Head;
use crate::net::{ConnId, Msg, Peer};
use crate::redis::process::{Process, Snapshot};
use crate::setup::{Machine, Persistence};
use crate::time::{MS, SECOND, Time};
use crate::world::{Ev, World};

/// What a server finds when it starts.
#[derive(Clone, Copy, Debug, Default)]
pub struct Disk {
    /// The append-only file.
    pub log: Head,
    pub snapshot: Option<Snapshot>,
}

impl World {
    /// The container starts: fenced, with what is on its disk.
    pub fn boot(&mut self, pod: usize, machine: Machine, ip: IpAddr, disk: Disk) -> usize {
        let persistence = self.setup.persistence;
        let fresh = self.new_id();
        let snapshot = disk.snapshot.filter(|_| persistence == Persistence::Rdb);
        let head = match persistence {
            Persistence::None => 0,
            Persistence::Rdb => snapshot.map_or(0, |snapshot| snapshot.head),
            Persistence::Aof => disk.log,
        };
        let position = snapshot.filter(|snapshot| snapshot.replid != 0);
        let number = self.processes.len();
        self.processes.push(Process {
            pod,
            machine,
            ip,
            run: format!("run{number}"),
            born: self.now,
            alive: true,
            frozen: None,
            script: None,
            thawed: 0,
            loading: head != 0,
            role: if on(Mechanism::FencedBoot) { Role::Replica } else { Role::Master },
            source: None,
            replid: position.map_or(fresh, |snapshot| snapshot.replid),
            replid2: 0,
            second_offset: -1,
            offset: position.map_or(0, |snapshot| snapshot.offset),
            positioned: position.is_some(),
            backlog: None,
            head,
            serves: !on(Mechanism::ReplicationUserOff),
            quorum: 0,
            good: 0,
            conns: Vec::new(),
            upstream: None,
            downstream: Vec::new(),
            link_down_at: None,
            last_io: 0,
            paused_until: None,
            held: Vec::new(),
            waits: std::collections::VecDeque::new(),
            cannot_save: false,
            inbox: Vec::new(),
            snapshot,
            ending: false,
            cron_at: 0,
            cron_beat: 0,
        });
        if head != 0 {
            let at = self.now + self.rng.span(5 * MS, 800 * MS);
            self.queue.push(at, Ev::Loaded { pid: number });
        }
        let first = self.rng.below(SECOND);
        self.schedule_cron(number, first);
        number
    }

    /// It ends. `abrupt`: with its machine, so that nobody is told.
    pub fn die(&mut self, pid: usize, abrupt: bool) {
        let process = &mut self.processes[pid];
        if !std::mem::replace(&mut process.alive, false) {
            return;
        }
        process.inbox.clear();
        process.held.clear();
        process.waits.clear();
        let conns = std::mem::take(&mut process.conns);
        let upstream = process.upstream.take();
        for conn in conns {
            if abrupt {
                self.conns[conn].open[1] = false;
            } else {
                self.lose_tail(conn);
                self.close(conn, true);
            }
        }
        if let Some(upstream) = upstream {
            if abrupt {
                self.conns[upstream.conn].open[0] = false;
            } else {
                self.close(upstream.conn, false);
            }
        }
        self.processes[pid].downstream.clear();
    }

    /// What its disk holds now. A machine that loses power loses the last second of an append-only file.
    pub fn disk_of(&mut self, pid: usize, power_lost: bool) -> Disk {
        let process = &self.processes[pid];
        let mut log = if process.loading && process.upstream.is_some() { 0 } else { process.head };
        let snapshot = process.snapshot;
        let late = if power_lost { self.rng.below(6) } else { u64::from(self.rng.percent(5)) };
        for _ in 0..late {
            log = self.history.before(log);
        }
        Disk { log, snapshot }
    }

    pub fn freeze(&mut self, pid: usize) {
        let now = self.now;
        let process = &mut self.processes[pid];
        if process.runs() {
            process.frozen = Some(now);
            process.cron_at = process.cron_at.saturating_sub(now); // what is left of the second
            process.cron_beat += 1;
        }
    }

    pub fn thaw(&mut self, pid: usize) {
        if self.processes[pid].frozen.take().is_some() && self.processes[pid].alive {
            self.go_on(pid);
        }
    }

    /// A script begins. For 5 s nothing is answered, then everything but its end is refused.
    pub fn begin_script(&mut self, pid: usize) {
        let now = self.now;
        let process = &mut self.processes[pid];
        if process.runs() {
            process.script = Some(now);
            process.cron_at = process.cron_at.saturating_sub(now);
            process.cron_beat += 1;
            self.queue.push(now + crate::redis::command::BUSY_AFTER, Ev::ScriptSpeaks { pid });
        }
    }

    pub fn end_script(&mut self, pid: usize) {
        if self.processes[pid].script.take().is_some() && self.processes[pid].alive {
            self.go_on(pid);
        }
    }

    /// It runs again: first it reads what its sockets hold, one socket after the other; its timer comes later.
    fn go_on(&mut self, pid: usize) {
        let now = self.now;
        let process = &mut self.processes[pid];
        process.thawed = now;
        let left = process.cron_at.min(SECOND);
        self.read_sockets(pid);
        self.schedule_cron(pid, left);
    }

    /// In the order of the sockets, which is anybody's guess.
    pub fn read_sockets(&mut self, pid: usize) {
        let inbox = std::mem::take(&mut self.processes[pid].inbox);
        let mut sockets: Vec<(u64, ConnId)> = Vec::new();
        for (conn, _) in &inbox {
            if !sockets.iter().any(|(_, known)| known == conn) {
                sockets.push((self.rng.next(), *conn));
            }
        }
        sockets.sort_unstable();
        for (_, socket) in sockets {
            for (conn, msg) in inbox.iter().filter(|(conn, _)| *conn == socket) {
                self.server_reads(pid, *conn, msg.clone());
            }
        }
    }

    /// Something arrived at a server.
    pub fn server_gets(&mut self, pid: usize, conn: ConnId, msg: Msg) {
        let now = self.now;
        let process = &mut self.processes[pid];
        if !process.alive {
            return;
        }
        let deaf = process.script.is_some_and(|since| now < since + crate::redis::command::BUSY_AFTER);
        let waits = process.script.is_some() && !matches!(msg, Msg::Ask(_) | Msg::Write { .. });
        if process.frozen.is_some() || deaf || waits {
            process.inbox.push((conn, msg));
            return;
        }
        self.server_reads(pid, conn, msg);
    }

    fn server_reads(&mut self, pid: usize, conn: ConnId, msg: Msg) {
        let accepted_here = self.conns[conn].pid == pid;
        match msg {
            Msg::Fin if accepted_here => {
                self.conns[conn].open[1] = false;
                self.processes[pid].conns.retain(|other| *other != conn);
                if matches!(self.conns[conn].peer, Peer::Replica { .. }) {
                    self.downstream_lost(pid, conn);
                }
            }
            Msg::Fin => {
                self.conns[conn].open[0] = false;
                self.upstream_lost(pid, conn);
            }
            Msg::Ask(ask) => self.obey(pid, conn, *ask),
            Msg::Sync(sync) if accepted_here => {
                if self.conns[conn].open[1] {
                    self.master_hears(pid, conn, sync);
                }
            }
            Msg::Sync(sync) => self.replica_hears(pid, conn, sync),
            Msg::Write { write, wait } => {
                if self.conns[conn].open[1] {
                    self.client_write(pid, conn, write, wait);
                }
            }
            Msg::Answer(_) | Msg::Written { .. } => {}
        }
    }

    /// The newest living process at this address.
    pub fn process_at(&self, ip: IpAddr) -> Option<usize> {
        self.processes.iter().rposition(|process| process.alive && process.ip == ip)
    }

    pub fn after_pause(&mut self, pid: usize) {
        let due = self.processes[pid].paused_until.is_some_and(|until| self.now >= until);
        if due && self.processes[pid].alive {
            self.unpause(pid);
        }
    }

    /// Times between two looks at a process that does not run make no difference to anybody.
    pub fn script_speaks(&mut self, pid: usize) {
        let due = |since: Time| self.now >= since + crate::redis::command::BUSY_AFTER;
        if self.processes[pid].alive && self.processes[pid].script.is_some_and(due) {
            let (now, later): (Vec<_>, Vec<_>) = std::mem::take(&mut self.processes[pid].inbox)
                .into_iter()
                .partition(|(_, msg)| matches!(msg, Msg::Ask(_) | Msg::Write { .. }));
            self.processes[pid].inbox = now;
            self.read_sockets(pid);
            self.processes[pid].inbox.extend(later);
        }
    }
}
