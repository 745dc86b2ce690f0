//! The operator's requests, carried out: INFO, and the transactions that change a server.

use std::net::IpAddr;

use redis_ha_operator::core::event::{CommandOutcome, ProbeOutcome, RoleCommand};
use redis_ha_operator::core::facts::Role;
use redis_ha_operator::core::mechanism::{Mechanism, on};

use crate::net::{ConnId, Msg, Peer, Way};
use crate::operator::{Answer, Ask};
use crate::setup::Build;
use crate::time::{MS, SECOND, Time};
use crate::world::{Ev, World};

/// A script that runs longer is admitted: `busy-reply-threshold`.
pub const BUSY_AFTER: Time = 5 * SECOND;

impl World {
    /// A request of an operator arrived and is read.
    pub fn obey(&mut self, pid: usize, conn: ConnId, ask: Ask) {
        if !self.conns[conn].open[1] {
            return; // cut before it was read
        }
        let busy = self.processes[pid].script.is_some();
        let answer = match ask {
            Ask::Greet { cut_others, term, asked_at } => {
                if cut_others {
                    self.cut_operators(pid, conn, &term);
                }
                let info = Box::new(self.info(pid));
                Answer::Greeted { asked_at, busy, info }
            }
            Ask::Probe { asked_at } => {
                let outcome = if busy {
                    ProbeOutcome::Refused("BUSY Redis is busy running a script".to_owned())
                } else {
                    ProbeOutcome::Answered(Box::new(self.info(pid)))
                };
                Answer::Probed { asked_at, outcome }
            }
            Ask::Command { ticket, command, first, term } => {
                if first {
                    self.cut_operators(pid, conn, &term);
                }
                let outcome = self.transaction(pid, &command, &term);
                Answer::Replied { ticket, outcome }
            }
        };
        self.send(conn, Way::Back, Msg::Answer(Box::new(answer)));
    }

    /// `CLIENT KILL USER`: all connections of operators but this one.
    fn cut_operators(&mut self, pid: usize, conn: ConnId, term: &str) {
        if !on(Mechanism::CutPredecessor) {
            return;
        }
        self.note_contact(pid, term);
        for other in self.processes[pid].conns.clone() {
            let is_operator = matches!(self.conns[other].peer, Peer::Operator { .. });
            if other != conn && is_operator && self.conns[other].open[1] {
                self.close(other, true);
            }
        }
    }

    fn transaction(&mut self, pid: usize, command: &RoleCommand, term: &str) -> CommandOutcome {
        let process = &self.processes[pid];
        if *command == RoleCommand::KillScript {
            if process.script.is_none() {
                return CommandOutcome::Refused("NOTBUSY No scripts in execution right now.".to_owned());
            }
            self.end_script(pid);
            return CommandOutcome::Lost("the script was told to end".to_owned());
        }
        if process.script.is_some() {
            return CommandOutcome::Refused("BUSY Redis is busy running a script".to_owned());
        }
        let moves = matches!(
            command,
            RoleCommand::Detach
                | RoleCommand::Demote
                | RoleCommand::StepDown
                | RoleCommand::Promote { .. }
                | RoleCommand::Follow { .. }
        );
        if moves && process.loading {
            return CommandOutcome::Refused("LOADING Redis is loading the dataset in memory".to_owned());
        }
        self.check_command(pid, command, term);
        self.carry_out(pid, command);
        if !on(Mechanism::ReplicationUserOff) {
            self.processes[pid].serves = true;
        }
        self.say(|world| format!("{} carried out {command:?}", world.name_of(pid)));
        CommandOutcome::Done(Box::new(self.info(pid)))
    }

    fn carry_out(&mut self, pid: usize, command: &RoleCommand) {
        match command {
            RoleCommand::Detach => {
                self.unpause(pid);
                self.processes[pid].serves = false;
                self.follow(pid, None);
            }
            RoleCommand::Demote => {
                self.processes[pid].serves = false;
                self.follow(pid, None);
                self.cut_clients(pid);
            }
            RoleCommand::StepDown => {
                self.processes[pid].serves = false;
                self.follow(pid, None);
            }
            RoleCommand::Pause { millis } => {
                let until = self.now + millis * MS;
                self.processes[pid].paused_until = Some(until);
                self.queue.push(until, Ev::PauseOver { pid });
            }
            RoleCommand::Unpause => self.unpause(pid),
            RoleCommand::Promote { write_quorum } => {
                self.set_quorum(pid, *write_quorum);
                self.promote(pid);
                self.unpause(pid);
                if !on(Mechanism::ReplicationUserAfterRecord) {
                    self.processes[pid].serves = true;
                }
            }
            RoleCommand::Serve => self.processes[pid].serves = true,
            RoleCommand::Follow { ip, cut_clients, .. } => {
                self.processes[pid].serves = false;
                self.set_quorum(pid, 0);
                self.follow(pid, Some(*ip));
                self.unpause(pid);
                if *cut_clients {
                    self.cut_clients(pid);
                }
            }
            RoleCommand::SetWriteQuorum(quorum) => self.set_quorum(pid, *quorum),
            RoleCommand::CutClients => self.cut_clients(pid),
            RoleCommand::KillScript => {}
        }
    }

    fn set_quorum(&mut self, pid: usize, quorum: u32) {
        let now = self.now;
        let process = &mut self.processes[pid];
        process.quorum = quorum;
        process.good = process.count_good(now);
    }

    /// `REPLICAOF`, with an address or the placeholder.
    pub fn follow(&mut self, pid: usize, source: Option<IpAddr>) {
        let process = &self.processes[pid];
        if process.role == Role::Replica && process.source == source {
            return; // "OK Already connected to specified master"
        }
        let was_master = process.role == Role::Master;
        self.drop_upstream(pid);
        let process = &mut self.processes[pid];
        process.role = Role::Replica;
        process.source = source;
        process.waits.clear();
        if was_master {
            // It remembers its own position: it may continue under its own id.
            process.positioned = true;
            if self.setup.build == Build::Redis62 {
                self.drop_downstream(pid);
            }
        }
        self.attach(pid);
    }

    /// `REPLICAOF NO ONE`
    fn promote(&mut self, pid: usize) {
        if self.processes[pid].role == Role::Master {
            return;
        }
        self.note_promotion(pid);
        self.drop_upstream(pid);
        let id = self.new_id();
        let process = &mut self.processes[pid];
        process.role = Role::Master;
        process.source = None;
        process.replid2 = process.replid;
        process.second_offset = process.offset + 1;
        process.replid = id;
        process.positioned = false;
        process.link_down_at = None;
        self.drop_downstream(pid);
        self.counts.promotions += 1;
    }

    /// Held writes are carried out, or refused if it is no master any more.
    pub fn unpause(&mut self, pid: usize) {
        let process = &mut self.processes[pid];
        process.paused_until = None;
        for (conn, write, wait) in std::mem::take(&mut process.held) {
            self.client_write(pid, conn, write, wait);
        }
    }
}
