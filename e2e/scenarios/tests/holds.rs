//! Situations in which nothing may be done, and why not must be said; and what follows when they end.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use redis_ha_operator::api::RedisClusterSpec;
use scenarios::cluster::Cluster;
use scenarios::confirmed::Confirming;
use scenarios::scene::{SETTLE, Scene};
use tokio::time::{Instant, sleep};
use world::{PodHandle, Signal, World, addresses, wait_for};

/// What a hold must leave alone.
#[derive(Debug, PartialEq)]
struct Unchanged {
    master: Option<String>,
    promotions: usize,
    run_ids: Vec<String>,
    full_syncs: String,
}

async fn look(cluster: &Cluster) -> Result<Unchanged> {
    let master = cluster.master().await?;
    Ok(Unchanged {
        master: cluster.status().await?.master,
        promotions: cluster.promotions()?,
        run_ids: cluster.run_ids().await?,
        full_syncs: cluster.info(&master.ip, "sync_full").await?,
    })
}

/// A write from one pod to another, which no cut around the operator concerns.
async fn write_from(cluster: &Cluster, from: &PodHandle, to: &PodHandle, key: &str) -> Result<()> {
    let password = cluster.password().await?;
    let said = from
        .exec(&["redis-cli", "--no-auth-warning", "-a", &password, "-h", &to.ip, "SET", key, "value"])
        .await?;
    ensure!(said.trim() == "OK", "a write to {} got {said:?}", to.name);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_master_that_only_the_operator_cannot_reach_is_left_alone() -> Result<()> {
    let scene = Scene::with_operator(World::enter().await?, "partition").await?;
    let cluster = scene.cluster("cache", RedisClusterSpec::default()).await?;
    let master = cluster.master().await?;
    let pods = cluster.pods().await?;
    let replica = pods.iter().find(|pod| pod.name != master.name).context("a replica")?;
    let before = look(&cluster).await?;
    let begun = Instant::now();
    scene.world.cut(addresses::OUTER, &master.ip).await?;
    let said = cluster.says("Held", "True", "SupervisorPartitioned", Duration::from_secs(25)).await?;
    println!("after {:.1?}: {said}", begun.elapsed());
    cluster.is_told("SupervisorPartitioned", SETTLE).await?;
    while begun.elapsed() < Duration::from_secs(30) {
        write_from(&cluster, replica, &master, "held").await?;
        ensure!(cluster.promotions()? == before.promotions, "a failover away from a living master");
        ensure!(cluster.status().await?.master == before.master);
        sleep(Duration::from_secs(1)).await;
    }
    scene.world.heal(addresses::OUTER, &master.ip).await?;
    let healed = Instant::now();
    cluster.settled(SETTLE).await?;
    println!("settled {:.1?} after the cut was healed", healed.elapsed());
    assert_eq!(look(&cluster).await?, before);
    scene.close().await
}

#[tokio::test(flavor = "multi_thread")]
async fn an_operator_that_sees_nobody_does_nothing() -> Result<()> {
    let scene = Scene::with_operator(World::enter().await?, "blind").await?;
    let cluster = scene.cluster("cache", RedisClusterSpec::default()).await?;
    let master = cluster.master().await?;
    let pods = cluster.pods().await?;
    let replica = pods.iter().find(|pod| pod.name != master.name).context("a replica")?;
    let before = look(&cluster).await?;
    let begun = Instant::now();
    for pod in &pods {
        scene.world.cut(addresses::OUTER, &pod.ip).await?;
    }
    let said = cluster.says("Held", "True", "BlindSupervisor", Duration::from_secs(25)).await?;
    println!("after {:.1?}: {said}", begun.elapsed());
    sleep(Duration::from_secs(15)).await;
    assert_eq!(
        (cluster.status().await?.master, cluster.promotions()?),
        (before.master.clone(), before.promotions)
    );
    write_from(&cluster, replica, &master, "held").await?;
    for pod in &pods {
        scene.world.heal(addresses::OUTER, &pod.ip).await?;
    }
    cluster.settled(SETTLE).await?;
    assert_eq!(look(&cluster).await?, before);
    scene.close().await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_master_that_hangs_for_a_moment_goes_on_and_one_that_hangs_on_is_replaced() -> Result<()> {
    let scene = Scene::with_operator(World::enter().await?, "hung").await?;
    let cluster = scene.cluster("cache", RedisClusterSpec::default()).await?;
    let keys = cluster.write_confirmed("hung", 50, 2).await?;
    let master = cluster.master().await?;
    let before = look(&cluster).await?;
    master.kill(Signal::SIGSTOP)?;
    sleep(Duration::from_secs(2)).await;
    master.kill(Signal::SIGCONT)?;
    cluster.settled(SETTLE).await?;
    let after = look(&cluster).await?;
    assert_eq!((&after.master, after.promotions), (&before.master, before.promotions));
    master.kill(Signal::SIGSTOP)?;
    let replaced = wait_for("it is replaced", SETTLE, async || {
        Ok((cluster.master().await?.name != master.name).then_some(()))
    })
    .await;
    master.kill(Signal::SIGCONT)?;
    replaced?;
    cluster.settled(SETTLE).await?;
    assert_eq!(cluster.promotions()?, before.promotions + 1);
    let reason = cluster.status().await?.last_failover.map(|last| last.reason);
    assert_eq!(reason.as_deref(), Some("MasterHung"));
    for pod in cluster.pods().await? {
        assert_eq!(cluster.missing(&pod.ip, &keys).await?, [] as [String; 0], "{}", pod.name);
    }
    scene.close().await
}

#[tokio::test(flavor = "multi_thread")]
async fn without_the_api_server_redis_goes_on_and_nothing_changes() -> Result<()> {
    let scene = Scene::with_operators(World::enter_alone().await?, "away").await?;
    let cluster = scene.cluster("cache", RedisClusterSpec::default()).await?;
    let before = look(&cluster).await?;
    let ip = cluster.master().await?.ip;
    let mut app = cluster.app(&ip).await?;
    scene.world.stop_api().await?;
    let begun = Instant::now();
    let mut written = 0;
    while begun.elapsed() < Duration::from_secs(15) {
        redis::cmd("SET").arg(format!("away-{written}")).arg("1").query_async::<()>(&mut app).await?;
        written += 1;
        sleep(Duration::from_millis(50)).await;
    }
    scene.world.start_api().await?;
    let back = Instant::now();
    scene.operators.leader(SETTLE).await?;
    println!(
        "{written} writes while it was away; an operator leads {:.1?} after it was back",
        back.elapsed()
    );
    cluster.settled(SETTLE).await?;
    assert_eq!(look(&cluster).await?, before);
    scene.close().await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_master_that_dies_without_the_api_server_is_replaced_when_that_is_back() -> Result<()> {
    let scene = Scene::with_operators(World::enter_alone().await?, "noapi").await?;
    let cluster = scene.cluster("cache", RedisClusterSpec::default()).await?;
    let keys = cluster.write_confirmed("noapi", 100, 2).await?;
    let master = cluster.master().await?;
    let before = cluster.promotions()?;
    scene.world.stop_api().await?;
    // Seen by a leader that still may act: it cannot record what it would do.
    master.kill(Signal::SIGKILL)?;
    sleep(Duration::from_secs(12)).await;
    ensure!(cluster.promotions()? == before, "a promotion that is not on record");
    let log = scene.operators.logs()?;
    let said = log.lines().find(|line| line.contains("ControlPlaneLost")).context("the hold is not said")?;
    println!("{said}");
    scene.world.start_api().await?;
    let back = Instant::now();
    wait_for("another master", SETTLE, async || {
        let now = cluster.status().await?.master;
        Ok(now.filter(|now| *now != master.name))
    })
    .await?;
    cluster.takes_writes(SETTLE).await?;
    println!("writable {:.1?} after the API server was back", back.elapsed());
    cluster.settled(SETTLE).await?;
    let new = cluster.one_master(SETTLE).await?;
    assert_eq!(cluster.promotions()?, before + 1);
    assert_eq!(cluster.missing(&new.ip, &keys).await?, [] as [String; 0]);
    scene.close().await
}

#[tokio::test(flavor = "multi_thread")]
async fn with_a_slow_api_server_a_killed_master_is_replaced_once() -> Result<()> {
    let scene = Scene::with_operators(World::enter_alone().await?, "slow").await?;
    let cluster = scene.cluster("cache", RedisClusterSpec::default()).await?;
    let addresses = cluster.pods().await?.into_iter().map(|pod| pod.ip).collect();
    let writer = Confirming::start("slow", addresses, cluster.password().await?);
    let old = cluster.master().await?;
    let promotions = cluster.promotions()?;
    let slow = scene.world.slow_api(Duration::from_millis(300))?;
    // The operators live with it for a while before something happens.
    sleep(Duration::from_secs(5)).await;
    let before = writer.keys().len();
    ensure!(before > 0, "no write was confirmed");
    old.kill(Signal::SIGKILL)?;
    let killed = Instant::now();
    let new = wait_for("another master", SETTLE, async || {
        Ok(cluster.status().await?.master.filter(|now| *now != old.name))
    })
    .await?;
    println!("{new} is on record {:.1?} after the kill", killed.elapsed());
    cluster.takes_writes(SETTLE).await?;
    cluster.settled(SETTLE).await?;
    println!("settled {:.1?} after the kill, still with a slow API server", killed.elapsed());
    wait_for("a write is confirmed", SETTLE, async || Ok((writer.keys().len() > before).then_some(())))
        .await?;
    slow.end()?;
    let master = cluster.one_master(SETTLE).await?;
    let keys = writer.keys();
    drop(writer);
    println!("{before} keys confirmed before the kill, {} in all", keys.len());
    assert_eq!(cluster.promotions()?, promotions + 1);
    assert_eq!(cluster.missing(&master.ip, &keys).await?, [] as [String; 0]);
    scene.close().await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_master_that_stays_away_for_a_fresh_leader_is_replaced() -> Result<()> {
    let mut scene = Scene::with_operator(World::enter().await?, "fresh").await?;
    let cluster = scene.cluster("cache", RedisClusterSpec::default()).await?;
    let keys = cluster.write_confirmed("fresh", 100, 2).await?;
    let promotions = cluster.promotions()?;
    let master = cluster.master().await?;
    // No witness that this leader has seen streaming.
    scene.kill_operators().await?;
    scene.world.set_restart_delay(&master.namespace, &master.name, Some(Duration::from_secs(60)))?;
    master.kill(Signal::SIGKILL)?;
    sleep(Duration::from_secs(2)).await;
    scene.start_operator().await?;
    scene.operators.leader(SETTLE).await?;
    let led = Instant::now();
    let new = wait_for("another master", Duration::from_secs(55), async || {
        let now = cluster.status().await?.master;
        Ok(now.filter(|now| *now != master.name))
    })
    .await?;
    println!("{new} is master {:.1?} after the fresh operator led", led.elapsed());
    cluster.takes_writes(SETTLE).await?;
    println!("writable {:.1?} after the fresh operator led", led.elapsed());
    scene.world.set_restart_delay(&master.namespace, &master.name, Some(Duration::ZERO))?;
    cluster.settled(SETTLE).await?;
    let new = cluster.one_master(SETTLE).await?;
    let last = cluster.status().await?.last_failover.context("a failover is on record")?;
    println!("reason {}, took {:?} ms, stages {:?}", last.reason, last.took_ms, last.stages);
    assert_eq!(last.reason, "MasterRefusesConnections");
    assert_eq!(cluster.promotions()?, promotions + 1);
    assert_eq!(cluster.missing(&new.ip, &keys).await?, [] as [String; 0]);
    scene.close().await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_master_cut_off_with_one_replica_is_held_because_it_may_still_be_acknowledged() -> Result<()> {
    let scene = Scene::with_operator(World::enter().await?, "split").await?;
    let cluster = scene.cluster("cache", RedisClusterSpec::default()).await?;
    let master = cluster.master().await?;
    let pods = cluster.pods().await?;
    let replicas: Vec<&PodHandle> = pods.iter().filter(|pod| pod.name != master.name).collect();
    let [with, apart] = replicas.as_slice() else { anyhow::bail!("two replicas") };
    let before = look(&cluster).await?;
    for (a, b) in [
        (addresses::OUTER, master.ip.as_str()),
        (addresses::OUTER, &with.ip),
        (&apart.ip, &master.ip),
        (&apart.ip, &with.ip),
    ] {
        scene.world.cut(a, b).await?;
    }
    let said = cluster.says("Held", "True", "NoQuorum", Duration::from_secs(40)).await?;
    println!("{said}");
    write_from(&cluster, with, &master, "acknowledged-there").await?;
    sleep(Duration::from_secs(10)).await;
    assert_eq!(cluster.promotions()?, before.promotions);
    for (a, b) in [
        (addresses::OUTER, master.ip.as_str()),
        (addresses::OUTER, &with.ip),
        (&apart.ip, &master.ip),
        (&apart.ip, &with.ip),
    ] {
        scene.world.heal(a, b).await?;
    }
    cluster.settled(SETTLE).await?;
    assert_eq!(look(&cluster).await?.master, before.master);
    assert_eq!(cluster.missing(&master.ip, &["acknowledged-there".to_owned()]).await?, [] as [String; 0]);
    scene.close().await
}
