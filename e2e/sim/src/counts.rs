//! What is counted over one world, or many.

use std::collections::BTreeMap;
use std::fmt;

use crate::time::{SECOND, Time};

/// Totals.
#[derive(Clone, Debug, Default)]
pub struct Counts {
    pub seeds: u64,
    /// Virtual time.
    pub time: Time,
    pub faults: u64,
    /// Things that happened.
    pub events: u64,
    /// Calls of the supervisors.
    pub handled: u64,
    pub writes: u64,
    pub promotions: u64,
    pub full_syncs: u64,
    pub status_writes: u64,
    pub route_writes: u64,
    pub reads_writes: u64,
    pub false_alarms: u64,
    /// Finished role changes, by kind.
    pub changes: BTreeMap<String, u64>,
    /// Holds that began, by reason.
    pub held: BTreeMap<&'static str, u64>,
    /// Worlds that ended in a hold that needs a person, by reason.
    pub stuck: BTreeMap<String, u64>,
    /// Writes that were lost, and were allowed to be, by reason.
    pub lost: BTreeMap<&'static str, u64>,
    pub violations: u64,
}

impl Counts {
    pub fn hours(&self) -> u64 {
        self.time / SECOND / 3600
    }

    pub fn add(&mut self, other: &Self) {
        self.seeds += other.seeds;
        self.time += other.time;
        self.faults += other.faults;
        self.events += other.events;
        self.handled += other.handled;
        self.writes += other.writes;
        self.promotions += other.promotions;
        self.full_syncs += other.full_syncs;
        self.status_writes += other.status_writes;
        self.route_writes += other.route_writes;
        self.reads_writes += other.reads_writes;
        self.false_alarms += other.false_alarms;
        self.violations += other.violations;
        for (mine, theirs) in [(&mut self.changes, &other.changes), (&mut self.stuck, &other.stuck)] {
            for (name, count) in theirs {
                *mine.entry(name.clone()).or_default() += count;
            }
        }
        for (mine, theirs) in [(&mut self.held, &other.held), (&mut self.lost, &other.lost)] {
            for (name, count) in theirs {
                *mine.entry(name).or_default() += count;
            }
        }
    }
}

impl fmt::Display for Counts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "seeds {}, cluster-hours {}, faults {}, writes {}, promotions {}, full syncs {}, false alarms {}",
            self.seeds,
            self.hours(),
            self.faults,
            self.writes,
            self.promotions,
            self.full_syncs,
            self.false_alarms
        )?;
        writeln!(
            f,
            "events {}, calls of the supervisor {}, status writes {}, route writes {}",
            self.events, self.handled, self.status_writes, self.route_writes
        )?;
        writeln!(f, "role changes: {}", list(self.changes.iter()))?;
        writeln!(f, "holds: {}", list(self.held.iter()))?;
        writeln!(f, "ended in a hold: {}", list(self.stuck.iter()))?;
        writeln!(f, "writes lost within the documented windows: {}", list(self.lost.iter()))?;
        write!(f, "violations {}", self.violations)
    }
}

fn list<'a, K: fmt::Display + 'a>(counts: impl Iterator<Item = (K, &'a u64)>) -> String {
    let text: Vec<String> = counts.map(|(name, count)| format!("{name} {count}")).collect();
    if text.is_empty() { "none".to_owned() } else { text.join(", ") }
}
