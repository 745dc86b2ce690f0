//! What an idle cluster asks of the API server; its audit log is the judge.
//!
//! `IDLE_SECONDS` is how long is looked at.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::{Result, bail, ensure};
use redis_ha_operator::api::RedisClusterSpec;
use scenarios::operator::USER;
use scenarios::scene::{SETTLE, Scene};
use tokio::time::{Instant, sleep};
use world::{World, audit_position, audit_since};

/// The first minute may be busy.
const FIRST_MINUTE: Duration = Duration::from_secs(60);

type Counts = BTreeMap<String, usize>;

/// A timer that was this late tells of a starved machine, on which probes are late as well.
const STARVED: Duration = Duration::from_millis(100);

/// Windows that are looked at, at most.
const WINDOWS: u32 = 8;

/// Requests of the operators by verb and resource since a position of the audit log.
fn requests_since(position: u64) -> Result<Counts> {
    let mut counts = Counts::new();
    for event in audit_since(position)?.into_iter().filter(|event| event.user == USER) {
        // A watch is logged twice: when it begins and when it ends.
        if event.verb != "watch" || event.stage == "ResponseStarted" {
            *counts.entry(format!("{} {}{}", event.verb, event.resource, event.subresource)).or_default() +=
                1;
        }
    }
    Ok(counts)
}

/// Sleeps, and returns how late the worst of many short timers was.
async fn lateness(window: Duration) -> Duration {
    const TICK: Duration = Duration::from_millis(10);
    let begun = Instant::now();
    let mut worst = Duration::ZERO;
    while begun.elapsed() < window {
        let before = Instant::now();
        sleep(TICK).await;
        worst = worst.max(before.elapsed().saturating_sub(TICK));
    }
    worst
}

/// The requests of a window in which the machine was not starved.
async fn idle_requests(window: Duration) -> Result<Counts> {
    for _ in 0..WINDOWS {
        let position = audit_position()?;
        let late = lateness(window).await;
        let counts = requests_since(position)?;
        if late < STARVED {
            println!("the worst timer was {late:.0?} late");
            return Ok(counts);
        }
        println!("void, since the machine is starved: a timer was {late:.0?} late; {counts:?}");
    }
    bail!("the machine is starved: no window of {window:?} without a late timer");
}

/// Nothing but the lease, and watches opened again.
fn nothing_else(counts: &Counts) -> Result<()> {
    for asked in counts.keys() {
        let lease = ["get leases", "update leases"].contains(&asked.as_str());
        ensure!(lease || asked.starts_with("watch "), "idle clusters cause {asked:?}: {counts:?}");
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn idle_clusters_cost_the_api_server_nothing() -> Result<()> {
    let seconds = std::env::var_os("IDLE_SECONDS").and_then(|text| text.to_str()?.parse().ok()).unwrap_or(30);
    let window = Duration::from_secs(seconds);
    let scene = Scene::with_operators(World::enter_alone().await?, "idle").await?;
    let one = scene.cluster("cache", RedisClusterSpec::default()).await?;
    one.write_confirmed("idle", 10, 2).await?;
    sleep(FIRST_MINUTE).await;
    let alone = idle_requests(window).await?;
    println!("1 cluster, 2 operators, {window:?}: {alone:?}");
    nothing_else(&alone)?;

    for number in 0..20 {
        let replicas = if number % 7 == 0 { 3 } else { 1 };
        let spec = RedisClusterSpec { replicas, ..RedisClusterSpec::default() };
        let cluster = scenarios::cluster::Cluster::create(
            &scene.world,
            &scene.namespace,
            &format!("idle-{number}"),
            spec,
        )
        .await?;
        cluster.settled(SETTLE).await?;
    }
    sleep(FIRST_MINUTE).await;
    let many = idle_requests(window).await?;
    println!("21 clusters, 2 operators, {window:?}: {many:?}");
    nothing_else(&many)?;
    let lease = |counts: &Counts| {
        counts.iter().filter(|(asked, _)| asked.ends_with("leases")).map(|(_, count)| *count).sum::<usize>()
    };
    // Renewals drift a little; clusters would add hundreds.
    ensure!(lease(&many) <= lease(&alone) * 5 / 4 + 2, "{alone:?} -> {many:?}");
    scene.close().await
}
