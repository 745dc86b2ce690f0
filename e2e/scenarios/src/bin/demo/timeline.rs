//! The course of a fault on one clock: milliseconds since it happened.
//!
//! The operator stamps its log lines with this machine's clock, which is read here too just before the fault.
//! Only the promotion's answer has no line of its own: its stage in the status is counted from the first sign,
//! and the first sign has a line.

use std::fmt::Write;
use std::time::Duration;

use k8s_openapi::jiff::Timestamp;
use redis_ha_operator::api::status::LastFailover;
use serde_json::Value;
use tokio::time::Instant;

use crate::faults::Fault;

/// The moment of a fault, on two clocks.
#[derive(Clone, Copy)]
pub struct Moment {
    pub here: Instant,
    pub wall: Timestamp,
}

impl Moment {
    fn instant(self, at: Timestamp) -> Option<Instant> {
        let since = Duration::try_from(at.duration_since(self.wall)).ok()?;
        self.here.checked_add(since)
    }
}

/// Something that the operator told.
#[derive(Clone, Debug)]
pub struct Told {
    pub at: Timestamp,
    pub reason: String,
}

/// What happened, from the fault to the first writes on the new master.
pub struct Course {
    pub fault: Fault,
    pub old: String,
    pub new: String,
    pub moment: Moment,
    pub told: Vec<Told>,
    pub promoted: Option<Instant>,
    pub routed: Option<Timestamp>,
    pub direct: Instant,
    pub service: Instant,
}

/// What the operators told since this moment, in order.
pub fn told(logs: &str, since: Timestamp) -> Vec<Told> {
    let mut all: Vec<Told> = logs
        .lines()
        .filter_map(|line| serde_json::from_str::<Value>(line).ok())
        .filter_map(|line| {
            let at = line["timestamp"].as_str()?.parse().ok()?;
            let reason = line["reason"].as_str()?.to_owned();
            Some(Told { at, reason })
        })
        .filter(|told| told.at >= since)
        .collect();
    all.sort_by_key(|told| told.at);
    all
}

/// When the successor said that it is master.
pub fn promoted(told: &[Told], last: &LastFailover, moment: Moment) -> Option<Instant> {
    let stages = last.stages?;
    let promoted = stages.promoted?;
    // A switch begins with the decision, which nobody tells before it is on record.
    let (from, stage) = match first(told, "MasterSuspected") {
        Some(suspected) => (suspected, promoted),
        None => (first(told, "SwitchoverStarted")?, promoted.checked_sub(stages.recorded?)?),
    };
    moment.instant(from)?.checked_add(Duration::from_millis(stage))
}

fn first(told: &[Told], reason: &str) -> Option<Timestamp> {
    told.iter().find(|told| told.reason == reason).map(|told| told.at)
}

impl Course {
    /// Whether each stage was seen.
    pub fn is_complete(&self) -> bool {
        self.stages().iter().all(|(at, ..)| at.is_some())
    }

    fn stages(&self) -> Vec<(Option<Instant>, &'static str, String)> {
        let told = |reason| first(&self.told, reason).and_then(|at| self.moment.instant(at));
        let recorded = told("FailoverStarted").or_else(|| told("SwitchoverStarted"));
        // A pod that is told to end hands over before anybody misses it.
        let missed = (told("MasterSuspected"), "detected", format!("the operator misses {}", self.old));
        let noticed = (self.fault == Fault::KillProcess).then_some(missed);
        let rest = [
            (recorded, "recorded", "the intent is in the status".to_owned()),
            (self.promoted, "promoted", format!("{} has answered as the master", self.new)),
            (
                self.routed.and_then(|at| self.moment.instant(at)),
                "routed",
                format!("the Service leads to {}", self.new),
            ),
            (Some(self.direct), "first write", "directly".to_owned()),
            (Some(self.service), "first write", "through the Service".to_owned()),
        ];
        noticed.into_iter().chain(rest).collect()
    }

    pub fn print(&self) {
        let fault = match self.fault {
            Fault::KillProcess => format!("{}'s process is killed", self.old),
            Fault::DeletePod => format!("{} is told to end", self.old),
        };
        let mut lines = vec![(Some(self.moment.here), "fault", fault)];
        lines.extend(self.stages());
        lines.sort_by_key(|(at, ..)| at.unwrap_or(self.service));
        for (at, stage, what) in lines {
            let since = at.map(|at| at.duration_since(self.moment.here));
            let since = since.map_or("?".into(), |since| format!("{:.1} ms", since.as_secs_f64() * 1000.0));
            println!("{since:>14}  {stage:<12}  {what}");
        }
        println!();
    }
}

/// The operators' lines as people read them, for when something went wrong.
pub fn readable(logs: &str) -> String {
    let mut text = String::new();
    for line in logs.lines() {
        let Ok(told) = serde_json::from_str::<Value>(line) else {
            let _ = writeln!(text, "{line}");
            continue;
        };
        let word = |name: &str| told[name].as_str().unwrap_or_default().to_owned();
        let _ = writeln!(
            text,
            "{} {:<5} {} {}",
            word("timestamp"),
            word("level"),
            word("reason"),
            word("message")
        );
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_was_told_after_the_fault_counts_and_in_order() {
        let logs = concat!(
            "{\"timestamp\":\"2026-01-01T00:00:02.5Z\",\"reason\":\"FailoverStarted\"}\n",
            "not a line of the log\n",
            "{\"timestamp\":\"2026-01-01T00:00:02.25Z\",\"reason\":\"MasterSuspected\"}\n",
            "{\"timestamp\":\"2026-01-01T00:00:01Z\",\"reason\":\"MasterSuspected\"}\n",
            "{\"timestamp\":\"2026-01-01T00:00:03Z\",\"message\":\"no reason\"}\n",
        );
        let told = told(logs, "2026-01-01T00:00:02Z".parse().unwrap());
        let reasons: Vec<_> = told.iter().map(|told| told.reason.as_str()).collect();
        assert_eq!(reasons, ["MasterSuspected", "FailoverStarted"]);
    }
}
