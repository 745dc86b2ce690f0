//! Whether what was promised has held.

use std::time::Duration;

use anyhow::Result;
use scenarios::cluster::Cluster;
use tokio::time::Instant;

use crate::load::Outcome;
use crate::screen;
use crate::timeline::Course;

/// How long before its end a master may have acknowledged writes that no replica has: replicas of a healthy
/// cluster are milliseconds behind, also on a busy machine.
const LAST_MOMENT: Duration = Duration::from_millis(500);

/// Each promise in words, and whether it was kept.
pub struct Verdict(Vec<(bool, String)>);

impl Verdict {
    pub async fn of(cluster: &Cluster, faults: &[Course], outcome: &Outcome) -> Result<Self> {
        let recorded = cluster.status().await?.master.unwrap_or_default();
        let mut masters = Vec::new();
        for pod in cluster.pods().await? {
            if cluster.info(&pod.ip, "role").await? == "master" {
                masters.push(pod.name);
            }
        }
        let promotions = cluster.promotions()?;
        let wanted = faults.len() + 1;
        let lost: Vec<Instant> = outcome.direct.lost.iter().chain(&outcome.service.lost).copied().collect();
        let early = lost.iter().filter(|at| !faults.iter().any(|fault| in_last_moment(fault, **at))).count();
        Ok(Self(vec![
            (masters == [recorded.clone()], format!("one master, the recorded one: {}", masters.join(", "))),
            (
                promotions == wanted,
                format!(
                    "one promotion for each fault, by the servers' logs: {promotions} with the first master's"
                ),
            ),
            (faults.iter().all(Course::is_complete), "each stage of each failover was told".to_owned()),
            (
                outcome.confirmed_lost == 0,
                format!("of {} confirmed writes none is lost", screen::count(outcome.confirmed as u64)),
            ),
            (
                early == 0,
                format!(
                    "of {} acknowledged writes {} lost, none older than the dying master's last {} ms",
                    screen::count(
                        (outcome.direct.tally.acknowledged.len() + outcome.service.tally.acknowledged.len())
                            as u64
                    ),
                    lost.len(),
                    LAST_MOMENT.as_millis()
                ),
            ),
        ]))
    }

    pub fn holds(&self) -> bool {
        self.0.iter().all(|(kept, _)| *kept)
    }

    pub fn print(&self) {
        println!();
        for (kept, promise) in &self.0 {
            println!("{:<5} {promise}", if *kept { "held" } else { "NOT" });
        }
    }
}

fn in_last_moment(fault: &Course, acknowledged: Instant) -> bool {
    let end = fault.direct.min(fault.service);
    acknowledged + LAST_MOMENT >= fault.moment.here && acknowledged <= end
}
