//! Clients: each writes one unique value after the other, through the master Service or on the connection it has.

use std::net::IpAddr;

use crate::history::{Head, WriteId};
use crate::net::{ConnId, Msg, Peer, Way};
use crate::setup::Machine;
use crate::time::{MS, SECOND, Time};
use crate::world::{Ev, World};

/// A client gives a write up after this.
const PATIENCE: Time = SECOND;

/// One client.
#[derive(Clone, Debug)]
pub struct Client {
    machine: Machine,
    conn: Option<ConnId>,
    /// Names its connections.
    turn: u64,
    pending: Option<(WriteId, Time)>,
    /// It writes through the Service and sees its routes late.
    pub proxy: Option<IpAddr>,
}

/// A write that a client sent.
#[derive(Clone, Debug, Default)]
pub struct Write {
    /// Accepted: then it is this data set's last one.
    pub head: Option<Head>,
    pub pid: usize,
    pub at: Time,
    /// A replica has acknowledged it, and the client that waited for that was told.
    pub confirmed: bool,
    /// Why it may be lost.
    pub excuse: Option<&'static str>,
}

impl Client {
    pub fn new(machine: Machine) -> Self {
        Self { machine, conn: None, turn: 0, pending: None, proxy: None }
    }
}

impl World {
    pub fn client_turn(&mut self, client: usize) {
        let mean = self.setup.write_every;
        let pause = self.rng.range(mean / 2, mean * 3 / 2);
        self.later(pause, Ev::Client { client });
        if let Some((_, since)) = self.clients[client].pending {
            if self.now < since + PATIENCE {
                return;
            }
            self.client_hangs_up(client);
        }
        if self.clients[client].conn.is_none() {
            self.client_connects(client);
        }
        let Some(conn) = self.clients[client].conn else { return };
        let write = WriteId::try_from(self.writes.len()).unwrap_or(WriteId::MAX);
        self.writes.push(Write::default());
        self.clients[client].pending = Some((write, self.now));
        let wait = self.rng.percent(60);
        self.send(conn, Way::Forth, Msg::Write { write, wait });
    }

    fn client_connects(&mut self, client: usize) {
        let Client { machine, proxy, turn, .. } = self.clients[client];
        let Some(pid) = proxy.and_then(|ip| self.process_at(ip)) else { return };
        if self.net.is_open_both(machine, self.processes[pid].machine) {
            self.clients[client].turn += 1;
            let conn = self.connect(Peer::Client { client, turn: turn + 1 }, machine, pid);
            self.clients[client].conn = Some(conn);
        }
    }

    fn client_hangs_up(&mut self, client: usize) {
        self.clients[client].pending = None;
        if let Some(conn) = self.clients[client].conn.take() {
            self.close(conn, false);
        }
    }

    pub fn client_gets(&mut self, conn: ConnId, msg: &Msg) {
        let Peer::Client { client, turn } = self.conns[conn].peer else { return };
        if let Msg::Fin = msg {
            self.conns[conn].open[0] = false;
        }
        if self.clients[client].turn != turn || self.clients[client].conn != Some(conn) {
            return;
        }
        match msg {
            Msg::Fin => {
                self.clients[client].conn = None;
                self.clients[client].pending = None;
            }
            Msg::Written { write, ok } => {
                if self.clients[client].pending.is_some_and(|(pending, _)| pending == *write) {
                    self.clients[client].pending = None;
                }
                // Some libraries connect anew when they are refused, others stay.
                if !ok && self.rng.percent(50) {
                    self.client_hangs_up(client);
                }
            }
            _ => {}
        }
    }

    /// A server took a write.
    pub fn accepted(&mut self, pid: usize, write: WriteId, head: Head) {
        let excuse = self.excuse_for_writer(pid);
        let entry = &mut self.writes[write as usize];
        entry.head = Some(head);
        entry.pid = pid;
        entry.at = self.now;
        entry.excuse = excuse;
        self.counts.writes += 1;
    }

    /// kube-proxy on the clients' machines has taken the change.
    pub fn proxy_changes(&mut self, ip: Option<IpAddr>) {
        for client in &mut self.clients {
            client.proxy = ip;
        }
        self.last_write_due = self.now + 50 * MS;
    }
}
