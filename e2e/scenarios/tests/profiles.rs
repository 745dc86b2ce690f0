//! What the profiles and the limits of `spec.failover` do to running servers.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use redis_ha_operator::api::RedisClusterSpec;
use redis_ha_operator::api::names::ACKNOWLEDGE_ANNOTATION;
use redis_ha_operator::api::quantity::Quantity;
use redis_ha_operator::api::spec::{Failover, Profile};
use scenarios::cluster::Cluster;
use scenarios::scene::{SETTLE, Scene};
use tokio::time::{Instant, sleep};
use world::{PodHandle, Signal, World, wait_for};

const NOTHING: [String; 0] = [];
/// Longer than any test.
const AWAY: Option<Duration> = Some(Duration::from_secs(600));

fn spec(profile: Profile, failover: Failover) -> RedisClusterSpec {
    RedisClusterSpec { profile, failover: Some(failover), ..RedisClusterSpec::default() }
}

/// `min-replicas-to-write` of the recorded master.
async fn quorum(cluster: &Cluster) -> Result<u32> {
    let mut operator = cluster.operator(&cluster.master().await?.ip).await?;
    let (_, value): (String, u32) =
        redis::cmd("CONFIG").arg("GET").arg("min-replicas-to-write").query_async(&mut operator).await?;
    Ok(value)
}

async fn recorded_quorum(cluster: &Cluster) -> Result<u32> {
    let record = cluster.status().await?.supervision.context("nothing is on record")?;
    Ok(record.write_quorum.effective)
}

/// The pods that are not the master.
async fn replicas(cluster: &Cluster) -> Result<Vec<PodHandle>> {
    let master = cluster.master().await?.name;
    Ok(cluster.pods().await?.into_iter().filter(|pod| pod.name != master).collect())
}

/// Ends the server for good, until [`bring_back`].
fn take_away(cluster: &Cluster, pod: &PodHandle) -> Result<()> {
    cluster.world.set_restart_delay(&pod.namespace, &pod.name, AWAY)?;
    pod.kill(Signal::SIGKILL)
}

fn bring_back(cluster: &Cluster, pod: &PodHandle) -> Result<()> {
    cluster.world.set_restart_delay(&pod.namespace, &pod.name, Some(Duration::ZERO))
}

/// One write to the recorded master: `None`, or what it said instead of doing it.
async fn refusal(cluster: &Cluster) -> Result<Option<String>> {
    let mut app = cluster.app(&cluster.master().await?.ip).await?;
    let said = redis::cmd("SET").arg("profile").arg("1").query_async::<()>(&mut app).await;
    Ok(said.err().map(|error| error.to_string()))
}

async fn another_master(cluster: &Cluster, old: &PodHandle) -> Result<()> {
    wait_for("another master", SETTLE, async || Ok((cluster.master().await?.name != old.name).then_some(())))
        .await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cache_needs_no_replica_and_its_hung_master_is_replaced_after_its_time() -> Result<()> {
    let scene = Scene::with_operator(World::enter().await?, "profiles").await?;
    let usual = scene.cluster("usual", spec(Profile::Cache, Failover::default())).await?;
    let patient = Failover { hung_after: Some("30s".into()), ..Failover::default() };
    let patient = scene.cluster("patient", spec(Profile::Cache, patient)).await?;
    assert_eq!((quorum(&usual).await?, recorded_quorum(&usual).await?), (0, 0));
    let keys = usual.write_confirmed("kept", 50, 2).await?;
    let (old, slow) = (usual.master().await?, patient.master().await?);
    let promotions = usual.promotions()?;

    let stopped = Instant::now();
    old.kill(Signal::SIGSTOP)?;
    slow.kill(Signal::SIGSTOP)?;
    let replaced = another_master(&usual, &old).await;
    let took = stopped.elapsed();
    let untouched = patient.promotions();
    slow.kill(Signal::SIGCONT)?;
    old.kill(Signal::SIGCONT)?;
    replaced?;
    println!("a hung master was replaced {took:.1?} after it was stopped");
    assert!(took >= Duration::from_secs(2), "sooner than hungAfter");
    // Only where the machine was not too slow for the comparison.
    if took < Duration::from_secs(25) {
        assert_eq!(untouched?, 1, "hungAfter of the spec overrides the profile's");
    }

    usual.settled(SETTLE).await?;
    assert_eq!((quorum(&usual).await?, recorded_quorum(&usual).await?), (0, 0));
    assert_eq!(usual.promotions()?, promotions + 1);
    assert_eq!(usual.status().await?.last_failover.context("a failover")?.reason, "MasterHung");
    let master = usual.one_master(SETTLE).await?;
    assert_eq!(usual.missing(&master.ip, &keys).await?, NOTHING);

    for pod in replicas(&usual).await? {
        take_away(&usual, &pod)?;
    }
    sleep(Duration::from_secs(4)).await; // beyond the lag that a write quorum would allow
    assert_eq!(refusal(&usual).await?, None, "a cache stays writable without replicas");
    usual.restart_after(Some(Duration::ZERO))?;
    usual.settled(SETTLE).await?;
    scene.close().await
}

#[tokio::test(flavor = "multi_thread")]
async fn balanced_gives_its_write_quorum_up_while_no_replica_is_left() -> Result<()> {
    let scene = Scene::with_operator(World::enter().await?, "balanced").await?;
    let cluster = scene.cluster("cache", spec(Profile::Balanced, Failover::default())).await?;
    assert_eq!((quorum(&cluster).await?, recorded_quorum(&cluster).await?), (1, 1));
    let keys = cluster.write_confirmed("kept", 50, 2).await?;
    for pod in replicas(&cluster).await? {
        take_away(&cluster, &pod)?;
    }
    let killed = Instant::now();
    wait_for("the write quorum is given up", SETTLE, async || {
        Ok((recorded_quorum(&cluster).await? == 0 && quorum(&cluster).await? == 0).then_some(()))
    })
    .await?;
    cluster.takes_writes(SETTLE).await?;
    println!("writable without replicas {:.1?} after they were killed", killed.elapsed());
    cluster.restart_after(Some(Duration::ZERO))?;
    cluster.settled(SETTLE).await?;
    assert_eq!((quorum(&cluster).await?, recorded_quorum(&cluster).await?), (1, 1));
    assert_eq!(cluster.promotions()?, 1);
    assert_eq!(cluster.missing(&cluster.master().await?.ip, &keys).await?, NOTHING);
    scene.close().await
}

#[tokio::test(flavor = "multi_thread")]
async fn durable_refuses_writes_rather_than_give_its_write_quorum_up() -> Result<()> {
    let scene = Scene::with_operator(World::enter().await?, "durable").await?;
    let cluster = scene.cluster("cache", spec(Profile::Durable, Failover::default())).await?;
    let mut keys = cluster.write_confirmed("kept", 50, 2).await?;
    for pod in replicas(&cluster).await? {
        take_away(&cluster, &pod)?;
    }
    let said = cluster.says("WritesAccepted", "False", "WriteQuorumNotMet", SETTLE).await?;
    println!("{said}");
    let begun = Instant::now();
    // Balanced would have given it up by now.
    while begun.elapsed() < Duration::from_secs(15) {
        assert_eq!((quorum(&cluster).await?, recorded_quorum(&cluster).await?), (1, 1));
        let said = refusal(&cluster).await?.context("a write that nobody has a copy of was taken")?;
        assert!(said.contains("NOREPLICAS"), "{said}");
        sleep(Duration::from_secs(1)).await;
    }
    cluster.restart_after(Some(Duration::ZERO))?;
    cluster.takes_writes(SETTLE).await?;
    cluster.settled(SETTLE).await?;

    // A certain death: the successor demands its replica from the first write on.
    keys.extend(cluster.write_confirmed("again", 50, 2).await?);
    let old = cluster.master().await?;
    old.kill(Signal::SIGKILL)?;
    another_master(&cluster, &old).await?;
    assert_eq!((quorum(&cluster).await?, recorded_quorum(&cluster).await?), (1, 1));
    cluster.settled(SETTLE).await?;
    let master = cluster.one_master(SETTLE).await?;
    assert_eq!(cluster.missing(&master.ip, &keys).await?, NOTHING);
    scene.close().await
}

#[tokio::test(flavor = "multi_thread")]
async fn durable_promotes_nobody_while_a_replica_that_may_know_more_is_away() -> Result<()> {
    let scene = Scene::with_operator(World::enter().await?, "strict").await?;
    let cluster = scene.cluster("cache", spec(Profile::Durable, Failover::default())).await?;
    let keys = cluster.write_confirmed("kept", 50, 2).await?;
    let (master, pods) = (cluster.master().await?, replicas(&cluster).await?);
    let promotions = cluster.promotions()?;
    let away = pods.first().context("a replica")?;
    take_away(&cluster, away)?;
    sleep(Duration::from_secs(2)).await;
    take_away(&cluster, &master)?;
    let said = cluster.says("Held", "True", "NoQuorum", SETTLE).await?;
    println!("{said}");
    sleep(Duration::from_secs(5)).await;
    assert_eq!(cluster.promotions()?, promotions);
    // With the master back, too, somebody can be chosen. Without persistence it comes back empty.
    bring_back(&cluster, &master)?;
    bring_back(&cluster, away)?;
    cluster.settled(SETTLE).await?;
    let now = cluster.one_master(SETTLE).await?;
    assert_eq!(cluster.missing(&now.ip, &keys).await?, NOTHING);
    scene.close().await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_replica_that_lacks_too_much_is_promoted_only_when_a_person_says_so() -> Result<()> {
    let scene = Scene::with_operator(World::enter().await?, "stale").await?;
    let limit = Failover { max_lost_bytes: Some(Quantity("1Ki".into())), ..Failover::default() };
    let cluster = scene.cluster("cache", spec(Profile::Cache, limit)).await?;
    let keys = cluster.write_confirmed("kept", 50, 2).await?;
    let (master, pods) = (cluster.master().await?, replicas(&cluster).await?);
    for pod in &pods {
        scene.world.cut(&master.ip, &pod.ip).await?;
    }
    let mut app = cluster.app(&master.ip).await?;
    for number in 0..50 {
        let key = format!("behind-{number}");
        redis::cmd("SET").arg(key).arg("x".repeat(1024)).query_async::<()>(&mut app).await?;
    }
    sleep(Duration::from_secs(1)).await; // the operator reads the master's position
    take_away(&cluster, &master)?;
    let said = cluster.says("Held", "True", "TooStale", SETTLE).await?;
    println!("{said}");
    assert_eq!(cluster.promotions()?, 1);

    cluster.annotate(ACKNOWLEDGE_ANNOTATION, "yes").await?;
    println!("{:?}", cluster.is_told("AnnotationNotReadable", SETTLE).await?);
    let epoch = said.split_once(&format!("{ACKNOWLEDGE_ANNOTATION}=")).context("it says what to do")?.1;
    let epoch: String = epoch.chars().take_while(char::is_ascii_digit).collect();
    ensure!(!epoch.is_empty(), "no epoch in {said:?}");
    cluster.annotate(ACKNOWLEDGE_ANNOTATION, &epoch).await?;
    another_master(&cluster, &master).await?;
    for pod in &pods {
        scene.world.heal(&master.ip, &pod.ip).await?;
    }
    bring_back(&cluster, &master)?;
    cluster.settled(SETTLE).await?;
    let last = cluster.status().await?.last_failover.context("a failover is on record")?;
    println!("{} bytes are known to be lost", last.lost_bytes_known.unwrap_or_default());
    assert!(last.lost_bytes_known.is_some_and(|bytes| bytes >= 50 * 1024), "{last:?}");
    let now = cluster.one_master(SETTLE).await?;
    assert_eq!(cluster.missing(&now.ip, &keys).await?, NOTHING);
    scene.close().await
}
