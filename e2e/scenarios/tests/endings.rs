//! How long the end of a pod takes: only a master that serves replicas waits, to be relieved; and one that hangs is
//! ended.

use std::time::Duration;

use anyhow::{Result, ensure};
use k8s_openapi::api::core::v1::Pod;
use kube::Api;
use redis_ha_operator::api::RedisClusterSpec;
use redis_ha_operator::api::spec::{Failover, FailoverMode};
use scenarios::cluster::Cluster;
use scenarios::scene::{SETTLE, Scene};
use tokio::time::{Instant, sleep};
use world::{PodHandle, Signal, World, wait_for};

/// A hook that waits for nobody takes about a second; one that waits in vain more than 20.
const SOON: Duration = Duration::from_secs(12);

async fn gone(cluster: &Cluster, pod: &PodHandle) -> Result<()> {
    wait_for("the pod is gone", SETTLE, async || {
        let now = cluster.world.pod(&pod.namespace, &pod.name).await;
        Ok(now.map_or(true, |now| now.uid != pod.uid).then_some(()))
    })
    .await
}

/// From the moment in which somebody else tells it to end: the garbage collector takes its time.
async fn told_to_end(cluster: &Cluster, pod: &PodHandle) -> Result<Duration> {
    let pods: Api<Pod> = Api::namespaced(cluster.world.client(), &pod.namespace);
    wait_for("the pod is told to end", SETTLE, async || {
        let now = pods.get_opt(&pod.name).await?;
        Ok(now.is_none_or(|now| now.metadata.deletion_timestamp.is_some()).then_some(()))
    })
    .await?;
    let begun = Instant::now();
    gone(cluster, pod).await?;
    Ok(begun.elapsed())
}

async fn deleted(cluster: &Cluster, pod: &PodHandle) -> Result<Duration> {
    let begun = Instant::now();
    cluster.world.delete_pod(&pod.namespace, &pod.name, None).await?;
    gone(cluster, pod).await?;
    Ok(begun.elapsed())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_replica_a_pod_alone_and_a_deleted_cluster_end_at_once() -> Result<()> {
    let scene = Scene::with_operator(World::enter().await?, "endings").await?;
    let cluster = scene.cluster("cache", RedisClusterSpec::default()).await?;
    let master = cluster.master().await?;
    for pod in cluster.pods().await?.iter().filter(|pod| pod.name != master.name).take(1) {
        let took = deleted(&cluster, pod).await?;
        println!("a replica: {took:.1?}");
        assert!(took < SOON, "a replica took {took:.1?}");
    }
    cluster.settled(SETTLE).await?;
    let (took, deletion) = tokio::join!(told_to_end(&cluster, &master), cluster.delete());
    deletion?;
    let took = took?;
    println!("the master of a deleted cluster: {took:.1?}");
    assert!(took < SOON, "the master of a deleted cluster took {took:.1?}");

    let alone = RedisClusterSpec { replicas: 1, ..RedisClusterSpec::default() };
    let alone = scene.cluster("alone", alone).await?;
    let took = deleted(&alone, &alone.master().await?).await?;
    println!("a pod alone: {took:.1?}");
    assert!(took < SOON, "a pod alone took {took:.1?}");
    scene.close().await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_master_that_nobody_relieves_waits_its_time_and_no_password_is_in_an_argument() -> Result<()> {
    let scene = Scene::with_operator(World::enter().await?, "unrelieved").await?;
    let manual = Failover { mode: FailoverMode::Manual, ..Failover::default() };
    let spec = RedisClusterSpec { failover: Some(manual), ..RedisClusterSpec::default() };
    let cluster = Cluster::create(&scene.world, &scene.namespace, "cache", spec).await?;
    cluster.takes_writes(SETTLE).await?;
    cluster.says("ReplicationHealthy", "True", "AllInSync", SETTLE).await?;
    let secrets = [
        cluster.secret("cache-server", "replication-password").await?,
        cluster.secret("cache-server", "operator-password").await?,
        cluster.password().await?,
    ];
    let master = cluster.master().await?;
    let looking = async {
        let mut seen = 0;
        while seen < 5 {
            // The shell that looks is one of the processes.
            let all = master.exec(&["sh", "-c", "cat /proc/[0-9]*/cmdline | tr '\\0' ' '"]).await?;
            ensure!(secrets.iter().all(|secret| !all.contains(secret.as_str())), "a password in {all}");
            seen += u32::from(all.contains("redis-cli -p 6379 --user"));
            sleep(Duration::from_millis(20)).await;
        }
        Ok(())
    };
    let (took, looked) = tokio::join!(deleted(&cluster, &master), looking);
    looked?;
    let took = took?;
    println!("a master that nobody relieves: {took:.1?}");
    assert!(Duration::from_secs(15) < took && took < Duration::from_secs(45), "it took {took:.1?}");
    scene.close().await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_master_that_was_replaced_and_hangs_on_is_ended_with_its_pod() -> Result<()> {
    let scene = Scene::with_operator(World::enter().await?, "hangs").await?;
    let cluster = scene.cluster("cache", RedisClusterSpec::default()).await?;
    let keys = cluster.write_confirmed("kept", 50, 2).await?;
    let old = cluster.master().await?;
    let promotions = cluster.promotions()?;
    let stopped = Instant::now();
    old.kill(Signal::SIGSTOP)?;
    let told = cluster.is_told("HungPodDeleted", Duration::from_secs(150)).await?;
    println!("after {:.1?}: {told:?}", stopped.elapsed());
    assert!(stopped.elapsed() > Duration::from_secs(60), "sooner than it should be");
    gone(&cluster, &old).await?;
    cluster.settled(SETTLE).await?;
    let master = cluster.one_master(SETTLE).await?;
    assert_eq!(cluster.promotions()?, promotions + 1);
    for pod in cluster.pods().await? {
        assert_ne!(pod.uid, old.uid);
        assert_eq!(cluster.missing(&pod.ip, &keys).await?, [] as [String; 0], "{}", pod.name);
    }
    println!("{} is the master", master.name);
    scene.close().await
}
