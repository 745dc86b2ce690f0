//! The invariants, looked at after everything that happens. Each has the name that the design gives it.
//!
//! A checker knows the whole truth: what servers hold, which process lives, what is on record. It never asks the
//! supervisor under test.

pub mod choice;
pub mod commands;
pub mod data;
pub mod record;
pub mod settled;
pub mod writers;

use std::collections::{BTreeMap, BTreeSet};

use redis_ha_operator::core::event::Measure;

use crate::time::Time;
use crate::world::World;

/// One broken invariant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    pub rule: &'static str,
    pub at: Time,
    pub text: String,
}

/// What the checkers remember.
#[derive(Clone, Debug, Default)]
pub struct Checks {
    pub broken: Vec<Violation>,
    /// Run ids that were on record as the master.
    pub masters: BTreeSet<String>,
    /// Replication ids that were on record.
    pub lineage: BTreeSet<String>,
    /// Promotions carried out, by the epoch then on record.
    pub promotions: BTreeMap<u64, u32>,
    /// Epoch at which the master on record changed last.
    pub master_epoch: u64,
    /// Lease terms in the order in which they began.
    pub terms: BTreeMap<String, u64>,
    /// Newest term that has cut the others' connections to this process.
    pub contact: BTreeMap<usize, u64>,
    /// Masters that were replaced although nothing but time spoke against them: with a write quorum of 0, or Cache.
    pub unfenced: BTreeMap<String, &'static str>,
    pub held: Option<&'static str>,
    /// Number of living processes, for a fast look.
    pub alive: Vec<usize>,
}

impl World {
    /// An invariant is broken. Only the first time counts: what follows is usually a consequence.
    pub fn broke(&mut self, rule: &'static str, text: impl FnOnce(&World) -> String) {
        if !self.checks.broken.is_empty() {
            return;
        }
        let text = text(self);
        self.say_state();
        self.say(|_| format!("BROKEN {rule}: {text}"));
        self.counts.violations += 1;
        let at = self.now + self.skipped;
        self.checks.broken.push(Violation { rule, at, text });
    }

    /// After everything that happens.
    pub fn check_always(&mut self) {
        self.check_writers();
    }

    pub fn note_measure(&mut self, _op: usize, measure: &Measure) {
        match measure {
            Measure::Finished(last) => {
                *self.counts.changes.entry(format!("{:?}", last.kind)).or_default() += 1;
                self.check_loss_told(last);
            }
            Measure::State(gauges) => {
                if gauges.held != self.checks.held {
                    self.checks.held = gauges.held;
                    if let Some(held) = gauges.held {
                        *self.counts.held.entry(held).or_default() += 1;
                    }
                }
            }
            Measure::FalseAlarm { .. } => {}
        }
    }

    /// A process ends.
    pub fn note_end(&mut self, _pid: usize) {}

    /// The process of the master on record, if it lives.
    pub fn recorded_master(&self) -> Option<usize> {
        let master = self.api.record()?.master.as_ref()?;
        self.process_of(&master.run_id).filter(|pid| self.processes[*pid].alive)
    }

    pub fn process_of(&self, run: &str) -> Option<usize> {
        // Run ids carry their number.
        run.strip_prefix("run")?.parse().ok().filter(|pid| *pid < self.processes.len())
    }
}
