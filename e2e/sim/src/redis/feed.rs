//! Replication: who syncs from whom, partially or in full, and what is streamed.

use redis_ha_operator::core::facts::Role;

use crate::history::Head;
use crate::net::{ConnId, Msg, Peer, Way};
use crate::redis::process::{Backlog, Downstream, LinkState, ReplId, Upstream};
use crate::setup::Build;
use crate::time::{MS, SECOND, Time};
use crate::world::World;

/// Words between a replica and its master.
#[derive(Clone, Debug)]
pub enum Sync {
    /// `AUTH`, `REPLCONF`, `PSYNC`: with the replica's position, if it has one.
    Ask {
        position: Option<(ReplId, i64)>,
    },
    Ack(i64),
    /// The master lets nobody sync, or cannot.
    Denied,
    /// Partial sync under this id.
    Continue {
        id: ReplId,
    },
    /// A full sync begins: the replica forgets its position.
    Full,
    /// All data is there; loading begins.
    Data,
    /// Loaded.
    Loaded {
        id: ReplId,
        offset: i64,
        head: Head,
    },
    /// Part of the stream. `ack`: the replica is to acknowledge at once.
    Item {
        offset: i64,
        head: Head,
        ack: bool,
    },
}

impl World {
    /// A replica tries to reach its master.
    pub fn attach(&mut self, pid: usize) {
        let replica = &self.processes[pid];
        let (Some(ip), None) = (replica.source, replica.upstream) else { return };
        if !replica.runs() || replica.loading || replica.role == Role::Master {
            return;
        }
        let machine = replica.machine;
        let position = replica.positioned.then_some((replica.replid, replica.offset));
        let Some(source) = self.process_at(ip) else { return };
        if source == pid || !self.net.is_open_both(machine, self.processes[source].machine) {
            return;
        }
        let conn = self.connect(Peer::Replica { pid }, machine, source);
        self.processes[pid].upstream = Some(Upstream { conn, state: LinkState::Asked, since: self.now });
        // The greeting takes some round trips.
        self.send_later(conn, Way::Forth, MS, Msg::Sync(Sync::Ask { position }));
    }

    /// At the master.
    pub fn master_hears(&mut self, pid: usize, conn: ConnId, sync: Sync) {
        match sync {
            Sync::Ask { position } => self.answer_sync(pid, conn, position),
            Sync::Ack(offset) => self.acknowledged(pid, conn, offset),
            _ => {}
        }
    }

    fn answer_sync(&mut self, pid: usize, conn: ConnId, position: Option<(ReplId, i64)>) {
        let master = &self.processes[pid];
        let Peer::Replica { pid: replica } = self.conns[conn].peer else { return };
        let fit = master.role == Role::Master || master.link_is_up();
        if !master.serves || master.loading || !fit {
            self.send(conn, Way::Back, Msg::Sync(Sync::Denied));
            return;
        }
        // A question that lay in the socket of a stopped master: nobody waits for its answer any more.
        let asks = self.processes[replica].upstream.is_some_and(|upstream| upstream.conn == conn);
        if asks {
            self.check_source(pid, replica);
        }
        let partial = position.filter(|(id, offset)| self.can_continue(pid, *id, *offset));
        let now = self.now;
        if let Some((_, offset)) = partial {
            let master = &mut self.processes[pid];
            let id = master.replid;
            let missing: Vec<(i64, Head)> = master
                .backlog
                .iter()
                .flat_map(|backlog| &backlog.items)
                .filter(|(at, _)| *at > offset)
                .copied()
                .collect();
            master.downstream.push(Downstream { conn, pid: replica, online: true, ack: 0, ack_at: now });
            master.good = master.count_good(now);
            if asks {
                self.check_partial(pid, replica, offset);
            }
            self.say(|world| format!("{} partial sync from {}", world.name_of(replica), world.name_of(pid)));
            self.send(conn, Way::Back, Msg::Sync(Sync::Continue { id }));
            for (offset, head) in missing {
                self.send(conn, Way::Back, Msg::Sync(Sync::Item { offset, head, ack: false }));
            }
            return;
        }
        if self.processes[pid].backlog.is_none() {
            // The first replica of a master without backlog: its history gets another name.
            let id = self.new_id();
            let master = &mut self.processes[pid];
            master.replid = id;
            master.replid2 = 0;
            master.second_offset = -1;
            master.offset += 1;
            master.backlog = Some(Backlog::new(master.offset));
        }
        if asks {
            self.check_full(pid, replica);
        }
        self.counts.full_syncs += 1;
        self.say(|world| format!("{} full sync from {}", world.name_of(replica), world.name_of(pid)));
        let master = &mut self.processes[pid];
        let (id, offset, head) = (master.replid, master.offset, master.head);
        master.downstream.push(Downstream { conn, pid: replica, online: false, ack: 0, ack_at: now });
        self.send(conn, Way::Back, Msg::Sync(Sync::Full));
        let transfer = self.rng.span(20 * MS, 1500 * MS);
        let loading = self.rng.span(MS, 300 * MS);
        self.send_later(conn, Way::Back, transfer, Msg::Sync(Sync::Data));
        self.send_later(conn, Way::Back, transfer + loading, Msg::Sync(Sync::Loaded { id, offset, head }));
    }

    fn can_continue(&self, pid: usize, id: ReplId, offset: i64) -> bool {
        let master = &self.processes[pid];
        let known = id == master.replid || (id == master.replid2 && offset < master.second_offset);
        known
            && offset <= master.offset
            && master.backlog.as_ref().is_some_and(|backlog| offset >= backlog.from)
    }

    fn acknowledged(&mut self, pid: usize, conn: ConnId, offset: i64) {
        let now = self.now;
        let master = &mut self.processes[pid];
        let Some(replica) = master.downstream.iter_mut().find(|replica| replica.conn == conn) else { return };
        replica.online = true;
        replica.ack = offset;
        replica.ack_at = now;
        // Clients that wait are answered only by the master to which they wrote.
        if master.role != Role::Master {
            master.waits.clear();
        }
        let mut confirmed = Vec::new();
        while let Some((at, write)) = master.waits.front().copied() {
            if at > offset {
                break;
            }
            master.waits.pop_front();
            confirmed.push(write);
        }
        for write in confirmed {
            self.writes[write as usize].confirmed = true;
        }
    }

    /// At the replica.
    pub fn replica_hears(&mut self, pid: usize, conn: ConnId, sync: Sync) {
        if self.processes[pid].upstream.is_none_or(|upstream| upstream.conn != conn) {
            return; // it has left that master, with what was unread
        }
        let now = self.now;
        self.processes[pid].last_io = now;
        match sync {
            Sync::Denied => {
                self.close(conn, false);
                self.processes[pid].upstream = None; // again in a second
            }
            Sync::Continue { id } => {
                let replica = &mut self.processes[pid];
                if replica.replid != id {
                    replica.replid2 = replica.replid;
                    replica.second_offset = replica.offset + 1;
                    replica.replid = id;
                    self.drop_downstream(pid);
                }
                let replica = &mut self.processes[pid];
                let offset = replica.offset;
                replica.backlog.get_or_insert_with(|| Backlog::new(offset));
                self.link_state(pid, LinkState::Up);
                self.acknowledge(pid, 0);
            }
            Sync::Full => {
                self.processes[pid].positioned = false;
                self.link_state(pid, LinkState::Transfer);
            }
            Sync::Data => {
                let replica = &mut self.processes[pid];
                replica.loading = true;
                replica.head = 0;
                self.link_state(pid, LinkState::Loading);
            }
            Sync::Loaded { id, offset, head } => {
                self.drop_downstream(pid);
                let replica = &mut self.processes[pid];
                replica.loading = false;
                replica.replid = id;
                replica.replid2 = 0;
                replica.second_offset = -1;
                replica.offset = offset;
                replica.head = head;
                replica.positioned = true;
                replica.backlog = Some(Backlog::new(offset));
                self.link_state(pid, LinkState::Up);
                let wait = if self.rng.percent(50) { 0 } else { self.rng.range(900, 2000) * MS };
                self.acknowledge(pid, wait);
            }
            Sync::Item { offset, head, ack } => self.take_in(pid, offset, head, ack),
            Sync::Ask { .. } | Sync::Ack(_) => {}
        }
    }

    fn take_in(&mut self, pid: usize, offset: i64, head: Head, ack: bool) {
        let replica = &mut self.processes[pid];
        if offset <= replica.offset {
            return;
        }
        let fits = head == replica.head || self.history.before(head) == replica.head;
        if !fits {
            self.broke("I7", |world| {
                format!("{} takes in a stream that does not continue its data", world.name_of(pid))
            });
        }
        let replica = &mut self.processes[pid];
        replica.offset = offset;
        replica.head = head;
        if let Some(backlog) = &mut replica.backlog {
            backlog.push(offset, head);
        }
        if ack {
            self.acknowledge(pid, 0);
        }
    }

    pub fn acknowledge(&mut self, pid: usize, later: Time) {
        if let Some(upstream) = self.processes[pid].upstream {
            let offset = self.processes[pid].offset;
            self.send_later(upstream.conn, Way::Forth, later, Msg::Sync(Sync::Ack(offset)));
        }
    }

    fn link_state(&mut self, pid: usize, state: LinkState) {
        let now = self.now;
        if let Some(upstream) = &mut self.processes[pid].upstream {
            upstream.state = state;
            upstream.since = now;
        }
    }

    /// A replica's link ends, whoever ended it.
    pub fn drop_upstream(&mut self, pid: usize) {
        let now = self.now;
        let Some(upstream) = self.processes[pid].upstream.take() else { return };
        self.close(upstream.conn, false);
        let replica = &mut self.processes[pid];
        match upstream.state {
            LinkState::Up => {
                replica.link_down_at = Some(now);
                // On a paused node the stream is held back, and freeing such a link throws the position away.
                if replica.is_paused(now) {
                    replica.positioned = false;
                }
            }
            LinkState::Loading => replica.loading = false, // its data is gone already
            LinkState::Asked | LinkState::Transfer => {}
        }
    }

    /// The master closed, or the connection broke.
    pub fn upstream_lost(&mut self, pid: usize, conn: ConnId) {
        if self.processes[pid].upstream.is_none_or(|upstream| upstream.conn != conn) {
            return;
        }
        self.drop_upstream(pid);
        if self.setup.build != Build::Redis62 {
            self.attach(pid);
        }
    }

    /// A replica went away.
    pub fn downstream_lost(&mut self, pid: usize, conn: ConnId) {
        let now = self.now;
        let master = &mut self.processes[pid];
        master.downstream.retain(|replica| replica.conn != conn);
        master.good = master.count_good(now);
    }

    /// Cuts all replicas.
    pub fn drop_downstream(&mut self, pid: usize) {
        let conns: Vec<ConnId> = self.processes[pid].downstream.iter().map(|replica| replica.conn).collect();
        for conn in conns {
            self.close(conn, true);
        }
        self.processes[pid].downstream.clear();
        self.processes[pid].good = 0;
    }

    /// Something new for everybody who syncs from here.
    pub fn stream(&mut self, pid: usize, bytes: i64, head: Head, ack: bool) -> i64 {
        let process = &mut self.processes[pid];
        process.head = head;
        let Some(backlog) = &mut process.backlog else {
            return process.offset; // nobody ever synced: nothing is counted
        };
        process.offset += bytes;
        let offset = process.offset;
        backlog.push(offset, head);
        let conns: Vec<ConnId> = process.downstream.iter().map(|replica| replica.conn).collect();
        for conn in conns {
            self.send(conn, Way::Back, Msg::Sync(Sync::Item { offset, head, ack }));
        }
        offset
    }

    /// How long a replica that hears nothing keeps its link.
    pub fn is_overdue(&self, pid: usize) -> bool {
        let process = &self.processes[pid];
        let limit = crate::redis::process::REPL_TIMEOUT;
        process.upstream.is_some_and(|upstream| {
            let heard = process.last_io.max(upstream.since);
            self.now > heard + if upstream.state == LinkState::Transfer { 6 * SECOND + limit } else { limit }
        })
    }
}
