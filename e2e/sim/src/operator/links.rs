//! An operator's connections: at most one attempt or connection a pod, as in the real shell.

use std::net::IpAddr;

use redis_ha_operator::core::event::{CommandOutcome, DialOutcome, Event, Knock, RoleCommand};
use redis_ha_operator::core::mechanism::{Mechanism, on};

use crate::net::{ConnId, Msg, Peer, Way};
use crate::operator::{Answer, Ask};
use crate::setup::Machine;
use crate::time::{MS, SECOND, Time};
use crate::world::{Ev, World};

/// A TCP connection that takes longer is "no route".
const CONNECT: Time = 300 * MS;
/// A greeting without an answer is reported as silent.
const GREETING: Time = 300 * MS;
/// A silent attempt is given up.
const ATTEMPT: Time = 10 * SECOND;
/// Unanswered questions on one connection.
const UNANSWERED: u32 = 3;

/// What is known of one pod's connection.
#[derive(Clone, Debug)]
pub struct Slot {
    pub link: u64,
    ip: IpAddr,
    pub conn: Option<ConnId>,
    pub open: bool,
    /// The term in which the operator's other connections to this server were cut.
    cut_in: Option<String>,
    unanswered: u32,
    /// Questions that wait until others are answered.
    waiting: u32,
    commands: Vec<u64>,
}

/// Where an address leads.
enum Road {
    Blocked,
    Reset,
    /// The sandbox is there, and nothing listens.
    Refused,
    Open(usize),
}

impl World {
    fn road(&self, op: usize, ip: IpAddr) -> Road {
        let from = self.operators[op].machine;
        let Some(pod) = self.pods.iter().rfind(|pod| pod.ip == Some(ip)) else { return Road::Blocked };
        let to: Machine = pod.machine;
        if self.net.is_refused(from, to) || self.net.is_refused(to, from) {
            return Road::Reset;
        }
        if !self.net.is_open_both(from, to) {
            return Road::Blocked;
        }
        match self.process_at(ip) {
            Some(pid) => Road::Open(pid),
            None if pod.listed => Road::Refused,
            None => Road::Blocked,
        }
    }

    pub fn dial(&mut self, op: usize, uid: String, ip: IpAddr) {
        let known = self.operators[op].slots.get(&uid);
        if known.is_some_and(|slot| !slot.open && slot.ip == ip) {
            return; // under way already
        }
        self.hang_up(op, &uid);
        let term = self.term(op);
        let operator = &mut self.operators[op];
        operator.next_link += 1;
        let (link, life, machine) = (operator.next_link, operator.life, operator.machine);
        let mut slot = Slot {
            link,
            ip,
            conn: None,
            open: false,
            cut_in: term.clone(),
            unanswered: 0,
            waiting: 0,
            commands: Vec::new(),
        };
        match self.road(op, ip) {
            Road::Open(pid) => {
                let peer = Peer::Operator { op, life, uid: uid.clone(), link };
                let conn = self.connect(peer, machine, pid);
                slot.conn = Some(conn);
                let asked_at = self.mono(op);
                let cut_others = term.is_some();
                let ask = Ask::Greet { cut_others, term: term.unwrap_or_default(), asked_at };
                // The handshake takes a round trip before the greeting.
                self.send_later(conn, Way::Forth, MS / 4, Msg::Ask(Box::new(ask)));
                self.later(GREETING, Ev::Greeting { op, life, uid: uid.clone(), link });
            }
            Road::Blocked => {
                let outcome = DialOutcome::Unroutable;
                self.later(CONNECT, Ev::DialEnds { op, life, uid: uid.clone(), link, outcome });
            }
            Road::Refused | Road::Reset => {
                let outcome = DialOutcome::Refused;
                let after = self.rng.range(200, 800);
                self.later(after, Ev::DialEnds { op, life, uid: uid.clone(), link, outcome });
            }
        }
        self.operators[op].slots.insert(uid, slot);
    }

    /// No TCP connection came about.
    pub fn dial_ends(&mut self, op: usize, life: u32, uid: &str, link: u64, outcome: DialOutcome) {
        if self.slot(op, life, uid, link).is_some() {
            self.operators[op].slots.remove(uid);
            self.tell(op, Event::Dialed { uid: uid.to_owned(), outcome });
        }
    }

    /// The greeting has had its time.
    pub fn greeting_late(&mut self, op: usize, life: u32, uid: &str, link: u64) {
        if self.slot(op, life, uid, link).is_some_and(|slot| !slot.open) {
            let uid = uid.to_owned();
            self.later(ATTEMPT - GREETING, Ev::GiveUp { op, life, uid: uid.clone(), link });
            self.tell(op, Event::Dialed { uid, outcome: DialOutcome::Silent });
        }
    }

    pub fn give_up(&mut self, op: usize, life: u32, uid: &str, link: u64) {
        if self.slot(op, life, uid, link).is_some_and(|slot| !slot.open) {
            self.hang_up(op, uid);
            let outcome = DialOutcome::Broken("no answer within 10 s".to_owned());
            self.tell(op, Event::Dialed { uid: uid.to_owned(), outcome });
        }
    }

    fn slot(&mut self, op: usize, life: u32, uid: &str, link: u64) -> Option<&mut Slot> {
        let operator = &mut self.operators[op];
        if operator.life != life || !operator.up {
            return None;
        }
        operator.slots.get_mut(uid).filter(|slot| slot.link == link)
    }

    pub fn hang_up(&mut self, op: usize, uid: &str) {
        let Some(slot) = self.operators[op].slots.remove(uid) else { return };
        if let Some(conn) = slot.conn {
            self.close(conn, false);
        }
        self.lose_commands(op, slot.commands);
    }

    fn lose_commands(&mut self, op: usize, commands: Vec<u64>) {
        for ticket in commands {
            let outcome = CommandOutcome::Lost("the connection ended".to_owned());
            self.soon(op, Event::Replied { ticket, outcome });
        }
    }

    pub fn knock(&mut self, op: usize, uid: String, ip: IpAddr) {
        let (outcome, after) = match self.road(op, ip) {
            Road::Open(_) => (Knock::Accepted, self.rng.range(200, 800)),
            Road::Refused | Road::Reset => (Knock::Refused, self.rng.range(200, 800)),
            Road::Blocked => (Knock::Unroutable, CONNECT),
        };
        let life = self.operators[op].life;
        self.later(after, Ev::Feed { op, life, event: Box::new(Event::Knocked { uid, outcome }) });
    }

    pub fn probe(&mut self, op: usize, uid: &str, link: u64) {
        let asked_at = self.mono(op);
        let slot = self.operators[op].slots.get_mut(uid);
        let Some(slot) = slot.filter(|slot| slot.link == link && slot.open) else { return };
        let Some(conn) = slot.conn else { return };
        if slot.unanswered >= UNANSWERED {
            slot.waiting += 1;
            return;
        }
        slot.unanswered += 1;
        self.send(conn, Way::Forth, Msg::Ask(Box::new(Ask::Probe { asked_at })));
    }

    pub fn command(&mut self, op: usize, ticket: u64, uid: &str, link: u64, command: RoleCommand) {
        let term = self.term(op);
        let slot = self.operators[op].slots.get_mut(uid);
        let Some((slot, conn)) = slot
            .filter(|slot| (slot.link == link || !on(Mechanism::CommandBoundToProcess)) && slot.open)
            .and_then(|slot| slot.conn.map(|conn| (slot, conn)))
        else {
            let outcome = CommandOutcome::Refused("not sent: that connection has ended".to_owned());
            return self.soon(op, Event::Replied { ticket, outcome });
        };
        let first = term.is_some() && slot.cut_in != term;
        if first {
            slot.cut_in.clone_from(&term);
        }
        slot.commands.push(ticket);
        // Whoever was let through and then paused still acts in the term in which the connection was claimed.
        let term = term.or_else(|| slot.cut_in.clone()).unwrap_or_default();
        self.send(conn, Way::Forth, Msg::Ask(Box::new(Ask::Command { ticket, command, first, term })));
    }

    /// An answer, or the end, arrives at the operator.
    pub fn operator_gets(&mut self, conn: ConnId, msg: Msg) {
        let Peer::Operator { op, life, uid, link } = self.conns[conn].peer.clone() else { return };
        if let Msg::Fin = msg {
            self.conns[conn].open[0] = false;
        }
        let Some(slot) = self.slot(op, life, &uid, link) else { return };
        match msg {
            Msg::Fin => {
                let (was_open, commands) = (slot.open, std::mem::take(&mut slot.commands));
                self.operators[op].slots.remove(&uid);
                self.lose_commands(op, commands);
                self.tell(
                    op,
                    if was_open {
                        Event::LinkLost { uid, link }
                    } else {
                        let outcome = DialOutcome::Broken("closed before the first INFO".to_owned());
                        Event::Dialed { uid, outcome }
                    },
                );
            }
            Msg::Answer(answer) => match *answer {
                Answer::Greeted { busy: true, .. } => {
                    self.hang_up(op, &uid);
                    let outcome = DialOutcome::Denied("BUSY Redis is busy running a script".to_owned());
                    self.tell(op, Event::Dialed { uid, outcome });
                }
                Answer::Greeted { asked_at, info, .. } => {
                    slot.open = true;
                    let outcome = DialOutcome::Connected { link, asked_at, info };
                    self.tell(op, Event::Dialed { uid, outcome });
                }
                Answer::Probed { asked_at, outcome } => {
                    slot.unanswered = slot.unanswered.saturating_sub(1);
                    if slot.waiting > 0 {
                        slot.waiting -= 1;
                        self.probe(op, &uid, link);
                    }
                    self.tell(op, Event::Probed { uid, link, asked_at, outcome });
                }
                Answer::Replied { ticket, outcome } => {
                    slot.commands.retain(|other| *other != ticket);
                    self.tell(op, Event::Replied { ticket, outcome });
                }
            },
            _ => {}
        }
    }
}
