//! What a server does once a second of its own: it counts ticks, so that a stopped one's do not run.

use redis_ha_operator::core::facts::Role;

use crate::net::ConnId;
use crate::redis::process::{REPL_TIMEOUT, Snapshot};
use crate::setup::Persistence;
use crate::time::{SECOND, Time};
use crate::world::{Ev, World};

/// A server with save points writes its data to disk about this often.
const SAVE_EVERY: Time = 60 * SECOND;

impl World {
    /// Time for the next look.
    pub fn schedule_cron(&mut self, pid: usize, after: Time) {
        let process = &mut self.processes[pid];
        process.cron_beat += 1;
        process.cron_at = self.now + after;
        self.queue.push(self.now + after, Ev::Cron { pid, beat: self.processes[pid].cron_beat });
    }

    pub fn cron(&mut self, pid: usize, beat: u32) {
        let process = &self.processes[pid];
        if !process.runs() || process.cron_beat != beat {
            return;
        }
        let now = self.now;
        if process.role == Role::Master && !process.downstream.is_empty() {
            // A PING, 14 bytes.
            let head = process.head;
            self.stream(pid, 14, head, false);
        }
        let silent = |at: Time| now > at + REPL_TIMEOUT;
        let gone: Vec<ConnId> = self.processes[pid]
            .downstream
            .iter()
            .filter(|replica| replica.online && silent(replica.ack_at))
            .map(|replica| replica.conn)
            .collect();
        for conn in gone {
            self.close(conn, true);
            self.downstream_lost(pid, conn);
        }
        if self.is_overdue(pid) {
            self.drop_upstream(pid);
        }
        if self.processes[pid].link_is_up() {
            self.acknowledge(pid, 0);
        }
        self.attach(pid);
        let process = &mut self.processes[pid];
        process.good = process.count_good(now);
        if self.setup.persistence == Persistence::Rdb {
            self.save(pid, SAVE_EVERY);
        }
        self.schedule_cron(pid, SECOND);
    }

    /// Writes a snapshot when the last one is that old.
    pub fn save(&mut self, pid: usize, every: Time) {
        let process = &mut self.processes[pid];
        let due =
            every == 0 || (self.now - process.born) / every != (self.now - process.born + SECOND) / every;
        if due && !process.loading {
            let replid = if process.positioned || process.role == Role::Master { process.replid } else { 0 };
            process.snapshot = Some(Snapshot { head: process.head, replid, offset: process.offset });
        }
    }
}
