//! Requests of operators to the API server, and everything that can happen to them on the way.

use std::net::IpAddr;

use k8s_openapi::api::coordination::v1::LeaseSpec;
use redis_ha_operator::api::status::RedisClusterStatus;
use redis_ha_operator::core::event::{Endpoint, Expect, Stored, WriteOutcome};

use crate::kube::api::CLUSTER_UID;
use crate::operator::Known;
use crate::time::{MS, SECOND, Time};
use crate::world::{Ev, World};

/// A request without an answer is given up after this.
pub const DEADLINE: Time = 2 * SECOND;

/// One request.
#[derive(Clone, Debug)]
pub enum Call {
    Status { ticket: u64, expect: Expect, status: Box<RedisClusterStatus> },
    Read { number: u64 },
    Route { ticket: u64, endpoint: Option<Endpoint>, epoch: u64, known: Known },
    Reads { ticket: u64, endpoints: Vec<Endpoint>, epoch: u64, known: Known },
    Label { uid: String, role: Option<&'static str> },
    Confirm { ticket: u64, uid: String },
    CheckLease { ticket: u64, term: Option<String> },
    LeaseGet { round: u64 },
    LeasePut { round: u64, spec: Box<LeaseSpec>, version: Option<u64>, asked_at: Time, renews: bool },
    Delete { uid: String },
    ClearSwitchover { value: String },
}

impl Call {
    fn changes(&self) -> bool {
        !matches!(
            self,
            Self::Read { .. } | Self::Confirm { .. } | Self::CheckLease { .. } | Self::LeaseGet { .. }
        )
    }

    /// What the fault injection means by a write.
    fn is_decision(&self) -> bool {
        self.changes() && !matches!(self, Self::LeasePut { .. } | Self::Label { .. })
    }
}

/// What comes back. `None` stands for "no answer in time".
#[derive(Clone, Debug)]
pub enum Reply {
    Written { outcome: WriteOutcome, version: Option<u64> },
    Stored(Box<Stored>),
    Address(Option<IpAddr>),
    Lease(Option<Box<(LeaseSpec, u64)>>),
}

/// A request on its way.
#[derive(Clone, Debug)]
pub struct Request {
    pub op: usize,
    pub life: u32,
    pub call: Call,
    deadline: Time,
}

impl World {
    /// Sends a request; `within`: the sender's patience.
    pub fn call(&mut self, op: usize, call: Call, within: Time) {
        let life = self.operators[op].life;
        let deadline = self.now + within.min(DEADLINE);
        let decision = call.is_decision();
        let lose_now = decision && self.lose_reply_at_point();
        self.requests_sent += 1;
        let id = self.requests_sent;
        self.requests.insert(id, Request { op, life, call, deadline });
        let take = |count: &mut u32| {
            let hit = decision && *count > 0;
            *count -= u32::from(hit);
            hit
        };
        if !self.api_is_open(op) {
            // Nobody listens, or nothing comes through.
            let at = if self.rng.percent(50) { self.now + 5 * MS } else { deadline };
            self.queue.push(at.min(deadline), Ev::CallOver { id, reply: None });
        } else if take(&mut self.api.lose_requests) {
            self.queue.push(deadline, Ev::CallOver { id, reply: None });
        } else if take(&mut self.api.late) {
            let at = deadline + self.rng.span(10 * MS, 8 * SECOND);
            self.queue.push(at, Ev::CallArrives { id, lost: true });
            self.queue.push(deadline, Ev::CallOver { id, reply: None });
        } else {
            let lost = take(&mut self.api.lose_replies) || lose_now;
            let at = self.now + self.api_delay();
            self.queue.push(at, Ev::CallArrives { id, lost });
            if at > deadline {
                self.queue.push(deadline, Ev::CallOver { id, reply: None });
            }
        }
    }

    fn api_delay(&mut self) -> Time {
        if self.api.slow > 0 { self.rng.span(20 * MS, 2500 * MS) } else { self.rng.range(500, 4000) }
    }

    /// The API server carries it out.
    pub fn call_arrives(&mut self, id: u64, lost: bool) {
        let Some(request) = self.requests.get(&id).cloned() else { return };
        let deadline = request.deadline;
        let late = self.now > deadline;
        if self.api.down > 0 && !late {
            self.queue.push(deadline, Ev::CallOver { id, reply: None });
            return;
        }
        let reply = self.carry_out_call(&request);
        if late {
            self.requests.remove(&id);
            return;
        }
        let at = self.now + self.api_delay();
        if lost || at > deadline {
            self.queue.push(deadline, Ev::CallOver { id, reply: None });
        } else {
            self.queue.push(at, Ev::CallOver { id, reply: Some(Box::new(reply)) });
        }
    }

    /// The answer arrives, or does not.
    pub fn call_over(&mut self, id: u64, reply: Option<Reply>) {
        let Some(request) = self.requests.get(&id) else { return };
        let (op, life, deadline) = (request.op, request.life, request.deadline);
        if reply.is_some() && !self.api_is_open(op) {
            self.queue.push(deadline.max(self.now), Ev::CallOver { id, reply: None });
            return;
        }
        // A request that is still on its way is carried out all the same.
        let call = request.call.clone();
        if reply.is_some() {
            self.requests.remove(&id);
        }
        if self.operators[op].life == life && self.operators[op].up {
            self.called(op, call, reply);
        }
    }

    fn carry_out_call(&mut self, request: &Request) -> Reply {
        let written = |outcome, version| Reply::Written { outcome, version };
        match &request.call {
            Call::Status { expect, status, .. } => {
                if self.api.conflicts > 0 {
                    self.api.conflicts -= 1;
                    return written(WriteOutcome::Conflict, None);
                }
                written(self.store_status(expect, (**status).clone(), request.op), None)
            }
            Call::Read { .. } => Reply::Stored(Box::new(Stored {
                uid: CLUSTER_UID.to_owned(),
                resource_version: self.api.version.to_string(),
                status: self.api.status.clone(),
            })),
            Call::Route { endpoint, epoch, known, .. } => {
                let stored = self.api.route.as_ref().map(|(fact, version)| (fact.epoch, *version));
                match known.precondition(stored, *epoch, endpoint.is_none()) {
                    Ok(version) => {
                        let outcome = self.store_route(endpoint.as_ref(), *epoch, version);
                        let version = self.api.route.as_ref().map(|(_, version)| *version);
                        written(outcome, version)
                    }
                    Err(outcome) => written(outcome, None),
                }
            }
            Call::Reads { endpoints, epoch, known, .. } => {
                let stored = self.api.reads.as_ref().map(|(fact, version)| (fact.epoch, *version));
                match known.precondition(stored, *epoch, endpoints.is_empty()) {
                    Ok(version) => {
                        let outcome = self.store_reads(endpoints, *epoch, version);
                        let version = self.api.reads.as_ref().map(|(_, version)| *version);
                        written(outcome, version)
                    }
                    Err(outcome) => written(outcome, None),
                }
            }
            Call::Label { uid, role } => {
                if let Some(pod) = self.pods.iter_mut().find(|pod| pod.listed && pod.uid == *uid) {
                    pod.label = role.map(str::to_owned);
                    self.pods_changed();
                }
                written(WriteOutcome::Written, None)
            }
            Call::Confirm { uid, .. } => {
                let pod = self.pods.iter().find(|pod| pod.listed && pod.uid == *uid);
                Reply::Address(pod.and_then(|pod| pod.ip))
            }
            Call::CheckLease { .. } | Call::LeaseGet { .. } => {
                Reply::Lease(self.api.lease.clone().map(Box::new))
            }
            Call::LeasePut { spec, version, .. } => {
                if self.api.lease.as_ref().map(|(_, version)| *version) != *version {
                    return written(WriteOutcome::Conflict, None);
                }
                let version = self.api.next_version();
                self.api.lease = Some(((**spec).clone(), version));
                written(WriteOutcome::Written, Some(version))
            }
            Call::Delete { uid } => {
                let number = self.pods.iter().position(|pod| pod.listed && pod.uid == *uid);
                if let Some(number) = number {
                    self.delete_pod(number);
                }
                written(WriteOutcome::Written, None)
            }
            Call::ClearSwitchover { value } => {
                if self.api.desired.switchover.as_ref() == Some(value) {
                    self.api.desired.switchover = None;
                    self.desired_changed();
                }
                written(WriteOutcome::Written, None)
            }
        }
    }
}
