//! What an idle cluster asks of the API server; its audit log is the judge.
//!
//! `IDLE_SECONDS` is how long is looked at.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::{Result, bail, ensure};
use redis_ha_operator::api::RedisClusterSpec;
use scenarios::operator::USER;
use scenarios::scene::{SETTLE, Scene};
use tokio::time::sleep;
use world::{World, audit_position, audit_since};

/// The first minute may be busy.
const FIRST_MINUTE: Duration = Duration::from_secs(60);

type Counts = BTreeMap<String, usize>;

/// Requests of the operators by verb and resource, during the given time.
async fn requests(seconds: u64) -> Result<Counts> {
    let position = audit_position()?;
    sleep(Duration::from_secs(seconds)).await;
    let mut counts = Counts::new();
    for event in audit_since(position)?.into_iter().filter(|event| event.user == USER) {
        // A watch is logged twice: when it begins and when it ends.
        if event.verb != "watch" || event.stage == "ResponseStarted" {
            *counts.entry(format!("{} {}{}", event.verb, event.resource, event.subresource)).or_default() += 1;
        }
    }
    Ok(counts)
}

/// The same for a time in which nobody was suspected: a starved machine is no idle cluster.
async fn idle_requests(scene: &Scene, seconds: u64) -> Result<Counts> {
    for _ in 0..5 {
        let suspicions = scene.operators.logs()?.matches("MasterSuspected").count();
        let counts = requests(seconds).await?;
        let more = scene.operators.logs()?.matches("MasterSuspected").count() - suspicions;
        if more == 0 {
            return Ok(counts);
        }
        println!("not idle, the machine was too busy for probes: {more} suspicions, {counts:?}");
    }
    bail!("the machine is too busy: a master was suspected in each look");
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
    let seconds = std::env::var("IDLE_SECONDS").ok().and_then(|text| text.parse().ok()).unwrap_or(60);
    let scene = Scene::with_operators(World::enter_alone().await?, "idle").await?;
    let one = scene.cluster("cache", RedisClusterSpec::default()).await?;
    one.write_confirmed("idle", 10, 2).await?;
    sleep(FIRST_MINUTE).await;
    let alone = idle_requests(&scene, seconds).await?;
    println!("1 cluster, 2 operators, {seconds} s: {alone:?}");
    nothing_else(&alone)?;

    for number in 0..20 {
        let replicas = if number % 7 == 0 { 3 } else { 1 };
        let spec = RedisClusterSpec { replicas, ..RedisClusterSpec::default() };
        let cluster =
            scenarios::cluster::Cluster::create(&scene.world, &scene.namespace, &format!("idle-{number}"), spec)
                .await?;
        cluster.settled(SETTLE).await?;
    }
    sleep(FIRST_MINUTE).await;
    let many = idle_requests(&scene, seconds).await?;
    println!("21 clusters, 2 operators, {seconds} s: {many:?}");
    nothing_else(&many)?;
    let lease = |counts: &Counts| {
        counts.iter().filter(|(asked, _)| asked.ends_with("leases")).map(|(_, count)| *count).sum::<usize>()
    };
    // Renewals drift a little; clusters would add hundreds.
    ensure!(lease(&many) <= lease(&alone) * 5 / 4 + 2, "{alone:?} -> {many:?}");
    scene.close().await
}
