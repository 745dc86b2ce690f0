//! The two faults, and waiting until the cluster has got over them.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use k8s_openapi::jiff::Timestamp;
use scenarios::cluster::Cluster;
use scenarios::operator::Operators;
use tokio::time::Instant;
use world::Signal;

use crate::load::Writers;
use crate::timeline::{self, Course, Moment};

/// Longer than any failover here, shorter than any patience.
const LIMIT: Duration = Duration::from_secs(60);

#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    KillProcess,
    DeletePod,
}

impl Fault {
    pub fn title(self) -> &'static str {
        match self {
            Fault::KillProcess => "Fault 1: kill -9 of the master's process",
            Fault::DeletePod => "Fault 2: the new master's pod is deleted",
        }
    }
}

/// Lets it happen, waits until all is well again, and tells the course.
pub async fn inflict(
    fault: Fault,
    cluster: &Cluster,
    writers: &Writers,
    operators: &Operators,
) -> Result<Course> {
    let old = cluster.master().await?;
    let epoch = cluster.status().await?.epoch;
    // Two clocks, read one after the other: the writers' and the one that logs are stamped with.
    let moment = Moment { here: Instant::now(), wall: Timestamp::now() };
    match fault {
        Fault::KillProcess => old.kill(Signal::SIGKILL)?,
        Fault::DeletePod => cluster.world.delete_pod(&old.namespace, &old.name, None).await?,
    }
    let failed_over = async {
        loop {
            let status = cluster.status().await?;
            let other = status.master.as_ref().is_some_and(|master| *master != old.name);
            if other && status.epoch > epoch && status.supervision.is_some_and(|record| record.plan.is_none())
            {
                return Ok::<_, anyhow::Error>(());
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    tokio::time::timeout(LIMIT, failed_over).await.context("nobody took over within 60 s")??;
    let status = cluster.settled(LIMIT).await?;
    let last = status.last_failover.context("the status tells of no failover")?;
    ensure!(last.from.as_deref() == Some(&old.name), "the last failover was not the expected one");

    let told = timeline::told(&operators.logs()?, moment.wall);
    let routed = told.iter().find(|told| told.reason == "Rerouted").map(|told| told.at);
    let promoted = timeline::promoted(&told, &last, moment);
    let (direct, service) = tokio::try_join!(
        writers.direct.recovered_after(moment.here, LIMIT),
        writers.service.recovered_after(moment.here, LIMIT)
    )?;
    Ok(Course { fault, old: old.name, new: last.to, moment, told, promoted, routed, direct, service })
}
