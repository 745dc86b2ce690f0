//! The election, as `kube::lease::elector` runs it around the same pure verdict.

use k8s_openapi::api::coordination::v1::LeaseSpec;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use k8s_openapi::jiff::Timestamp;
use redis_ha_operator::core::event::WriteOutcome;
use redis_ha_operator::core::facts::Mono;
use redis_ha_operator::kube::lease::evaluate::{
    Claim, DURATION, RENEW_DEADLINE, RETRY, Sighting, Verdict, evaluate,
};

use crate::kube::calls::{Call, DEADLINE, Reply};
use crate::operator::shell::Standing;
use crate::time::{SECOND, Time, micros};
use crate::world::{Ev, World};

/// Whoever gave the lease away does not take it back at once.
const YIELD: Time = 10 * SECOND;

/// One candidate.
#[derive(Clone, Debug)]
pub struct Elector {
    pub me: String,
    seen: Option<Sighting>,
    version: Option<u64>,
    /// What is known is the outcome of our own last write.
    fresh: bool,
    pub claim: Option<Claim>,
    highest: i32,
    published: Standing,
    round: u64,
    not_before: Time,
}

impl Elector {
    pub fn new(me: String) -> Self {
        Self {
            me,
            seen: None,
            version: None,
            fresh: false,
            claim: None,
            highest: 0,
            published: Standing::Unsure,
            round: 0,
            not_before: 0,
        }
    }

    /// What this operator may do, by its own clock.
    pub fn standing(&self, now: Mono) -> Standing {
        match &self.published {
            Standing::Leading { term } => match self.claim {
                Some(claim) if now < claim.valid_until => Standing::Leading { term: term.clone() },
                _ => Standing::Unsure,
            },
            other => other.clone(),
        }
    }

    pub fn term_of(me: &str, transitions: i32) -> String {
        format!("{me}.{transitions}")
    }

    fn learn(&mut self, spec: &LeaseSpec, version: u64, now: Mono) {
        let sighting = Sighting::new(Some(spec), self.seen.as_ref(), now);
        self.highest = self.highest.max(sighting.transitions);
        self.seen = Some(sighting);
        self.version = Some(version);
    }
}

impl World {
    /// One round: a read if needed, at most one write.
    pub fn elect(&mut self, op: usize, life: u32, round: u64) {
        let operator = &self.operators[op];
        if operator.life != life || !operator.up || operator.elector.round != round {
            return;
        }
        self.end_overdue_term(op);
        if self.now < self.operators[op].elector.not_before {
            self.next_round(op, micros(RETRY));
        } else if self.operators[op].elector.fresh {
            self.elect_decide(op);
        } else {
            let within = self.within_term(op);
            self.call(op, Call::LeaseGet { round }, within);
        }
    }

    fn next_round(&mut self, op: usize, pause: Time) {
        let left = self.within_term(op);
        let operator = &mut self.operators[op];
        operator.elector.round += 1;
        let (life, round) = (operator.life, operator.elector.round);
        self.later(pause.min(left.max(1)), Ev::Elect { op, life, round });
    }

    /// Nothing is waited for past the end of our own term.
    fn within_term(&self, op: usize) -> Time {
        let left =
            self.operators[op].elector.claim.map(|claim| claim.valid_until.saturating_sub(self.mono(op)));
        left.map_or(DEADLINE, micros)
    }

    fn end_overdue_term(&mut self, op: usize) {
        let now = self.mono(op);
        if self.operators[op].elector.claim.is_some_and(|claim| now >= claim.valid_until) {
            self.operators[op].elector.fresh = false;
            self.end_term(op, Standing::Unsure);
        }
    }

    fn end_term(&mut self, op: usize, standing: Standing) {
        let elector = &mut self.operators[op].elector;
        elector.claim = None;
        if elector.published != standing {
            elector.published = standing;
            self.poke(op);
        }
    }

    fn elect_decide(&mut self, op: usize) {
        let now = self.mono(op);
        let elector = &self.operators[op].elector;
        match evaluate(elector.seen.as_ref(), &elector.me, elector.claim, now) {
            Verdict::Renew => self.write_lease(op, true),
            Verdict::Create | Verdict::Take => {
                if elector.claim.is_some() {
                    self.end_term(op, Standing::Unsure);
                }
                self.write_lease(op, false);
            }
            Verdict::Wait { until } => {
                self.end_term(op, Standing::Following);
                self.operators[op].elector.fresh = false;
                self.next_round(op, micros(RETRY.min(until.saturating_sub(now))));
            }
        }
    }

    fn write_lease(&mut self, op: usize, renews: bool) {
        let asked_at = self.mono(op);
        let wall = MicroTime(Timestamp::UNIX_EPOCH + asked_at);
        let elector = &mut self.operators[op].elector;
        let seen = elector.seen.as_ref().map_or(0, |seen| seen.transitions);
        let transitions = match elector.claim {
            Some(claim) if renews => claim.transitions,
            _ => seen.max(elector.highest).saturating_add(1),
        };
        elector.highest = elector.highest.max(transitions);
        let spec = Box::new(LeaseSpec {
            holder_identity: Some(elector.me.clone()),
            lease_duration_seconds: i32::try_from(DURATION.as_secs()).ok(),
            lease_transitions: Some(transitions),
            renew_time: Some(wall),
            ..LeaseSpec::default()
        });
        let (round, version) = (elector.round, elector.version);
        let within = self.within_term(op);
        let call = Call::LeasePut { round, spec, version, asked_at: micros(asked_at), renews };
        self.call(op, call, within);
    }

    /// The answer to a read or a write of the lease.
    pub fn lease_called(&mut self, op: usize, call: Call, reply: Option<Reply>) {
        let now = self.mono(op);
        match call {
            Call::LeaseGet { round } if round == self.operators[op].elector.round => {
                match reply {
                    Some(Reply::Lease(lease)) => {
                        let elector = &mut self.operators[op].elector;
                        match lease {
                            Some(lease) => elector.learn(&lease.0, lease.1, now),
                            None => (elector.seen, elector.version) = (None, None),
                        }
                        self.elect_decide(op);
                    }
                    _ => {
                        self.end_overdue_term(op);
                        self.next_round(op, micros(RETRY));
                    }
                };
            }
            Call::LeasePut { round, spec, asked_at, renews, .. }
                if round == self.operators[op].elector.round =>
            {
                let elector = &mut self.operators[op].elector;
                if let Some(Reply::Written { outcome: WriteOutcome::Written, version: Some(version) }) = reply
                {
                    elector.learn(&spec, version, now);
                    elector.fresh = true;
                    let transitions = spec.lease_transitions.unwrap_or(0);
                    let valid_until = Mono::from_micros(asked_at) + RENEW_DEADLINE;
                    elector.claim = Some(Claim { transitions, valid_until });
                    if !renews && now < valid_until {
                        let term = Elector::term_of(&elector.me, transitions);
                        elector.published = Standing::Leading { term: term.clone() };
                        self.say(|world| format!("{} leads in term {term}", world.operators[op].name));
                        self.poke(op);
                    }
                } else {
                    elector.fresh = false;
                }
                self.end_overdue_term(op);
                self.next_round(op, micros(RETRY));
            }
            _ => {}
        }
    }

    /// Gives the lease to whoever wants it.
    pub fn yield_lease(&mut self, op: usize) {
        let now = self.now;
        let elector = &mut self.operators[op].elector;
        let Some(claim) = elector.claim else { return };
        elector.not_before = now + YIELD;
        elector.fresh = false;
        elector.round += 1;
        let spec = Box::new(LeaseSpec {
            lease_duration_seconds: i32::try_from(DURATION.as_secs()).ok(),
            lease_transitions: Some(claim.transitions),
            renew_time: Some(MicroTime(Timestamp::UNIX_EPOCH + Mono::from_micros(now))),
            ..LeaseSpec::default()
        });
        let version = elector.version;
        // Its answer changes nothing: the number of no round.
        let call = Call::LeasePut { round: u64::MAX, spec, version, asked_at: 0, renews: false };
        self.call(op, call, DEADLINE);
        self.end_term(op, Standing::Following);
        self.next_round(op, micros(RETRY));
    }
}
