//! Clients' writes, as the server sees them.

use crate::net::{ConnId, Msg, Peer, Way};
use crate::world::World;

/// Bytes of one write in the stream.
const WRITE_BYTES: i64 = 47;

impl World {
    pub fn client_write(&mut self, pid: usize, conn: ConnId, write: u32, wait: bool) {
        let now = self.now;
        let process = &mut self.processes[pid];
        let is_master = process.role == redis_ha_operator::core::facts::Role::Master;
        if is_master && process.is_paused(now) {
            process.held.push((conn, write, wait));
            return;
        }
        if !process.accepts(now) {
            self.send(conn, Way::Back, Msg::Written { write, ok: false });
            return;
        }
        let head = self.history.write(process.head);
        let offset = self.stream(pid, WRITE_BYTES, head, wait);
        if wait {
            self.processes[pid].waits.push_back((offset, write));
        }
        self.accepted(pid, write, head);
        self.send(conn, Way::Back, Msg::Written { write, ok: true });
    }

    /// `FLUSHALL` by somebody who may.
    pub fn flush_all(&mut self, pid: usize) {
        if self.processes[pid].accepts(self.now) {
            let head = self.history.flush(self.processes[pid].head);
            self.stream(pid, 18, head, false);
        }
    }

    /// `CLIENT KILL TYPE normal` and `pubsub`
    pub fn cut_clients(&mut self, pid: usize) {
        for conn in self.processes[pid].conns.clone() {
            if matches!(self.conns[conn].peer, Peer::Client { .. }) && self.conns[conn].open[1] {
                self.close(conn, true);
            }
        }
        self.processes[pid].held.clear();
    }
}
