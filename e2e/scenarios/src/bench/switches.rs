//! Planned switches under load, again and again.

use std::fmt::Write as _;
use std::time::Duration;

use anyhow::{Result, ensure};
use redis_ha_operator::api::names::SWITCHOVER_ANNOTATION;
use redis_ha_operator::api::status::Stages;
use tokio::sync::watch;
use tokio::time::Instant;
use world::wait_for;

use super::Stage;
use super::figures::{self, HEAD};
use super::machine::Ticks;
use crate::judge::Before;
use crate::writer::{Load, Target, Writer};

/// Pause of a writer between two writes.
const PAUSE: Duration = Duration::from_millis(1);
/// A switch that takes longer was not done.
const LONGEST: Duration = Duration::from_secs(20);

/// One switch and what came of it.
#[derive(Clone, Debug)]
pub struct Switch {
    /// The longest time in which no write was acknowledged to any of the clients that are connected to all pods.
    pub direct: Duration,
    /// The same for the client of the Service.
    pub service: Duration,
    pub promotions: usize,
    /// Pods that were synced in full for it.
    pub resynced: usize,
    pub stages: Option<Stages>,
    /// Acknowledged writes that the new master does not have.
    pub lost: usize,
}

/// All switches of one run.
#[derive(Clone, Debug)]
pub struct Switches {
    pub switches: Vec<Switch>,
    pub writers: usize,
    pub acknowledged: usize,
    /// Acknowledged writes that the last master does not have.
    pub missing_at_the_end: usize,
    pub server: String,
    pub machine: String,
}

/// Moves the master this many times, under that many writers and one more of the Service.
pub async fn run(stage: &Stage, count: usize, writers: usize, quiet: Duration) -> Result<Switches> {
    let cluster = &stage.cluster;
    let addresses: Vec<String> = cluster.pods().await?.into_iter().map(|pod| pod.ip).collect();
    let (_keep, addresses) = watch::channel(addresses);
    let password = cluster.password().await?;
    let load = |prefix: String| Load {
        prefix,
        password: password.clone(),
        pause: PAUSE,
        deadline: Duration::from_secs(1),
    };
    let direct: Vec<Writer> = (0..writers)
        .map(|number| Writer::start(Target::AnyOf(addresses.clone()), load(format!("direct-{number}"))))
        .collect();
    let service = Writer::start(Target::Service(cluster.service_ip().await?), load("service".to_owned()));
    let ticks = Ticks::now()?;
    let mut switches = Vec::new();
    while switches.len() < count {
        stage.quiet(quiet).await?;
        let switch = switch(stage, &direct, &service).await?;
        eprintln!(
            "switch {:>3}: direct {}, Service {}, lost {}",
            switches.len() + 1,
            figures::milliseconds(switch.direct),
            figures::milliseconds(switch.service),
            switch.lost
        );
        switches.push(switch);
    }
    let machine = ticks.report()?;
    let mut keys = service.stop().1;
    for writer in direct {
        keys.extend(writer.stop().1);
    }
    let missing_at_the_end = cluster.missing(&cluster.master().await?.ip, &keys).await?.len();
    let server = cluster.server().await?;
    Ok(Switches { switches, writers, acknowledged: keys.len(), missing_at_the_end, server, machine })
}

async fn switch(stage: &Stage, direct: &[Writer], service: &Writer) -> Result<Switch> {
    let cluster = &stage.cluster;
    let old = cluster.master().await?;
    let names = cluster.pod_names();
    let place = names.iter().position(|name| *name == old.name).unwrap_or_default();
    let target = &names[(place + 1) % names.len()];
    let before = Before::read(cluster).await?;
    let written: Vec<usize> =
        direct.iter().chain([service]).map(|writer| writer.tally().acknowledged.len()).collect();

    let start = Instant::now();
    cluster.annotate(SWITCHOVER_ANNOTATION, target).await?;
    wait_for("the master was moved", LONGEST, async || {
        Ok((cluster.master().await?.name == *target).then_some(()))
    })
    .await?;
    let status = cluster.settled(super::SETTLE).await?;
    let end = Instant::now();
    for writer in direct.iter().chain([service]) {
        writer.acknowledged_after(end, LONGEST).await?;
    }

    let new = cluster.master().await?;
    ensure!(new.name == *target, "{} is the master, not {target}", new.name);
    let verdict = before.judge(cluster, &old, &new).await?;
    let mut keys = Vec::new();
    for (writer, written) in direct.iter().chain([service]).zip(&written) {
        keys.extend(writer.keys(written.saturating_sub(1)));
    }
    let lost = cluster.missing(&new.ip, &keys).await?.len();
    Ok(Switch {
        direct: gap(direct, start, end),
        service: gap(std::slice::from_ref(service), start, end),
        promotions: verdict.promotions,
        resynced: verdict.resynced.len(),
        stages: status.last_failover.and_then(|last| last.stages),
        lost,
    })
}

/// The longest time without an acknowledgement to any of them.
fn gap(writers: &[Writer], start: Instant, end: Instant) -> Duration {
    let mut times: Vec<Instant> =
        writers.iter().flat_map(|writer| writer.tally().acknowledged.into_iter().map(|(_, at)| at)).collect();
    times.sort();
    let first = times.partition_point(|at| *at < start).saturating_sub(1);
    let last = times.partition_point(|at| *at <= end);
    let around = times.get(first..(last + 1).min(times.len())).unwrap_or_default();
    around.windows(2).map(|pair| pair[1] - pair[0]).max().unwrap_or_default()
}

impl Switches {
    /// What must hold whatever the machine does.
    pub fn check(&self) -> Result<()> {
        for (number, switch) in (1..).zip(&self.switches) {
            ensure!(switch.lost == 0, "switch {number} lost {} acknowledged writes", switch.lost);
            ensure!(switch.promotions == 1, "switch {number} made {} promotions", switch.promotions);
            ensure!(switch.resynced == 0, "switch {number} made {} full resyncs", switch.resynced);
        }
        ensure!(self.missing_at_the_end == 0, "{} acknowledged writes are missing", self.missing_at_the_end);
        Ok(())
    }

    /// A section of `docs/benchmarks.md`.
    pub fn report(&self) -> String {
        let (count, writers) = (self.switches.len(), self.writers);
        let mut text =
            format!("## The master is moved, {count} times in one run, under {writers} writers\n\n");
        let _ = writeln!(text, "{}; {}.\n", self.server, self.machine);
        text.push_str(HEAD);
        let all = |of: fn(&Switch) -> Duration| self.switches.iter().map(of).collect::<Vec<_>>();
        text.push_str(&figures::row("no write acknowledged, direct", &all(|switch| switch.direct)));
        text.push_str(&figures::row(
            "no write acknowledged, through the Service",
            &all(|switch| switch.service),
        ));
        let stages = |of: fn(&Stages) -> Option<u64>| -> Vec<Duration> {
            let reached = self.switches.iter().filter_map(|switch| of(switch.stages.as_ref()?));
            reached.map(Duration::from_millis).collect()
        };
        text.push_str(&figures::row("recorded, after the decision", &stages(|stages| stages.recorded)));
        text.push_str(&figures::row("promoted", &stages(|stages| stages.promoted)));
        text.push_str(&figures::row("routed", &stages(|stages| stages.routed)));
        let sum = |of: fn(&Switch) -> usize| self.switches.iter().map(of).sum::<usize>();
        let _ = writeln!(
            text,
            "\n{} acknowledged writes, {} lost; {} promotions, {} full resyncs.\n",
            self.acknowledged,
            sum(|switch| switch.lost) + self.missing_at_the_end,
            sum(|switch| switch.promotions),
            sum(|switch| switch.resynced)
        );
        text
    }
}
