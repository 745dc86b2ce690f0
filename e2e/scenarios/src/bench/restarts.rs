//! A master without persistence is killed and comes back empty, after different times.

use std::fmt::Write as _;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use world::Signal;

use super::machine::Ticks;
use super::{SETTLE, Stage};
use crate::judge::{Before, Verdict};

/// How long the killed process stays away.
pub const RESTART_DELAYS: [Duration; 4] =
    [Duration::ZERO, Duration::from_millis(50), Duration::from_millis(300), Duration::from_secs(3)];
/// Keys of each round, confirmed by both replicas before the kill.
const KEYS: u32 = 500;

/// One restart and what came of it.
#[derive(Clone, Debug)]
pub struct Restart {
    pub delay: Duration,
    /// Keys that both replicas had confirmed, of all rounds so far.
    pub confirmed: usize,
    /// Of these the ones that a pod does not have, once the cluster is whole again: the most of all pods.
    pub lost: usize,
    pub verdict: Verdict,
}

/// All restarts of one run.
#[derive(Clone, Debug)]
pub struct Restarts {
    pub restarts: Vec<Restart>,
    /// Name and version of the servers.
    pub server: String,
    pub machine: String,
}

/// Restarts the master this many times for each delay.
pub async fn run(stage: &Stage, count: usize) -> Result<Restarts> {
    let ticks = Ticks::now()?;
    let mut keys = Vec::new();
    let mut restarts = Vec::new();
    for delay in RESTART_DELAYS.into_iter().cycle().take(count * RESTART_DELAYS.len()) {
        let number = restarts.len() + 1;
        let restart = restart(stage, delay, number, &mut keys).await;
        let restart = restart.with_context(|| format!("restart {number}, after {delay:?}"))?;
        eprintln!("restart {number:>3}: after {:>4} ms, lost {}", delay.as_millis(), restart.lost);
        restarts.push(restart);
    }
    let server = stage.cluster.server().await?;
    Ok(Restarts { restarts, server, machine: ticks.report()? })
}

async fn restart(stage: &Stage, delay: Duration, number: usize, keys: &mut Vec<String>) -> Result<Restart> {
    let cluster = &stage.cluster;
    cluster.settled(SETTLE).await?;
    keys.extend(cluster.write_confirmed(&format!("round-{number}"), KEYS, 2).await?);
    let old = cluster.master().await?;
    cluster.world.set_restart_delay(&cluster.namespace, &old.name, Some(delay))?;
    let before = Before::read(cluster).await?;
    let epoch = cluster.status().await?.epoch;
    old.kill(Signal::SIGKILL)?;
    world::wait_for("another decision is on record", SETTLE, async || {
        Ok((cluster.status().await?.epoch > epoch).then_some(()))
    })
    .await?;
    cluster.settled(SETTLE).await?;
    let new = cluster.master().await?;
    ensure!(new.name != old.name, "the restarted {} was promoted although two replicas survived", old.name);
    let verdict = before.judge(cluster, &old, &new).await?;
    let mut lost = 0;
    for pod in cluster.pods().await? {
        lost = lost.max(cluster.missing(&pod.ip, keys).await?.len());
    }
    Ok(Restart { delay, confirmed: keys.len(), lost, verdict })
}

impl Restarts {
    /// What must hold whatever the machine does.
    pub fn check(&self) -> Result<()> {
        for (number, restart) in (1..).zip(&self.restarts) {
            ensure!(restart.lost == 0, "restart {number} lost {} confirmed keys", restart.lost);
            ensure!(
                restart.verdict.is_clean(),
                "restart {number} was no clean failover: {:?}",
                restart.verdict
            );
        }
        Ok(())
    }

    /// A section of `docs/benchmarks.md`.
    pub fn report(&self) -> String {
        let count = self.restarts.len();
        let mut text =
            format!("## A master without persistence comes back empty, {count} times in one run\n\n");
        let _ = writeln!(text, "{}; {}.\n", self.server, self.machine);
        text.push_str("| back after | restarts | promotions | full resyncs of a survivor | keys confirmed, looked for on all pods | keys lost |\n");
        text.push_str("| ---: | ---: | ---: | ---: | ---: | ---: |\n");
        for delay in RESTART_DELAYS {
            let of = || self.restarts.iter().filter(|restart| restart.delay == delay);
            let _ = writeln!(
                text,
                "| {} ms | {} | {} | {} | {} | {} |",
                delay.as_millis(),
                of().count(),
                of().map(|restart| restart.verdict.promotions).sum::<usize>(),
                of().map(|restart| restart.verdict.resynced.len()).sum::<usize>(),
                of().map(|restart| restart.confirmed).max().unwrap_or_default(),
                of().map(|restart| restart.lost).sum::<usize>(),
            );
        }
        text
    }
}
