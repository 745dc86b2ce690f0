//! Answers of the API server, turned into the supervisor's events.

use redis_ha_operator::core::event::{Event, WriteOutcome};

use crate::kube::calls::{Call, DEADLINE, Reply};
use crate::operator::Known;
use crate::operator::elector::Elector;
use crate::time::SECOND;
use crate::world::{Ev, World};

/// Pause before a failed read of the object is tried again.
const READ_AGAIN: u64 = SECOND;

impl World {
    /// A request was answered, or not in time.
    pub fn called(&mut self, op: usize, call: Call, reply: Option<Reply>) {
        match call {
            Call::Status { ticket, .. } => {
                let (outcome, _) = outcome(reply);
                self.tell(op, Event::StatusWritten { ticket, outcome });
            }
            Call::Route { ticket, .. } => {
                let (outcome, version) = outcome(reply);
                known(&mut self.operators[op].route, &outcome, version);
                self.tell(op, Event::RouteWritten { ticket, outcome });
            }
            Call::Reads { ticket, .. } => {
                let (outcome, version) = outcome(reply);
                known(&mut self.operators[op].reads, &outcome, version);
                self.tell(op, Event::ReadsWritten { ticket, outcome });
            }
            Call::Read { number } if number == self.operators[op].reading => match reply {
                Some(Reply::Stored(stored)) => self.tell(op, Event::Stored(stored)),
                _ => {
                    let life = self.operators[op].life;
                    self.later(READ_AGAIN, Ev::ReadAgain { op, life, number });
                }
            },
            Call::Confirm { ticket, uid } => {
                // A pod without an address is no answer, and neither is a failed read.
                if let Some(Reply::Address(ip)) = reply {
                    let listed = self.pods.iter().any(|pod| pod.listed && pod.uid == uid);
                    if ip.is_some() || !listed {
                        self.tell(op, Event::PodConfirmed { ticket, ip });
                    }
                }
            }
            Call::CheckLease { ticket, term } => {
                let now = self.term(op);
                let held = match reply {
                    Some(Reply::Lease(Some(lease))) => {
                        let holder = lease.0.holder_identity.unwrap_or_default();
                        let shown = Elector::term_of(&holder, lease.0.lease_transitions.unwrap_or(0));
                        term.as_ref() == Some(&shown) && now == term
                    }
                    _ => false,
                };
                self.tell(op, Event::LeaseChecked { ticket, held });
            }
            Call::LeaseGet { .. } | Call::LeasePut { .. } => self.lease_called(op, call, reply),
            Call::Read { .. } | Call::Label { .. } | Call::Delete { .. } | Call::ClearSwitchover { .. } => {}
        }
    }

    pub fn read_again(&mut self, op: usize, life: u32, number: u64) {
        let operator = &self.operators[op];
        if operator.life == life && operator.up && operator.reading == number {
            self.call(op, Call::Read { number }, DEADLINE);
        }
    }
}

fn outcome(reply: Option<Reply>) -> (WriteOutcome, Option<u64>) {
    match reply {
        Some(Reply::Written { outcome, version }) => (outcome, version),
        _ => (WriteOutcome::Unknown("the API server did not answer in time".to_owned()), None),
    }
}

/// A writer knows the version that it wrote, and nothing after a failure.
fn known(known: &mut Known, outcome: &WriteOutcome, version: Option<u64>) {
    *known = match (outcome, version) {
        (WriteOutcome::Written, Some(version)) => match *known {
            Known::Version(newer) => Known::Version(newer.max(version)),
            _ => Known::Version(version),
        },
        (WriteOutcome::Written, None) => *known,
        _ => Known::Nothing,
    };
}
