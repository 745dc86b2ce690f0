//! Requests for a switch that have to wait or cannot be granted, in the words of the documentation.

use std::time::Duration;

use anyhow::{Context, Result};
use redis_ha_operator::api::RedisClusterSpec;
use redis_ha_operator::api::names::SWITCHOVER_ANNOTATION;
use scenarios::cluster::Cluster;
use scenarios::helm::kubectl;
use scenarios::scene::{SETTLE, Scene};
use world::{Signal, World, wait_for};

/// As it stands in the README.
async fn annotate(cluster: &Cluster, wanted: &str) -> Result<()> {
    let value = format!("{SWITCHOVER_ANNOTATION}={wanted}");
    kubectl(&["annotate", "rdc", &cluster.name, &value, "--namespace", &cluster.namespace], "").await?;
    Ok(())
}

async fn taken_away(cluster: &Cluster) -> Result<()> {
    wait_for("the annotation is taken away", SETTLE, async || {
        Ok(cluster.annotation(SWITCHOVER_ANNOTATION).await?.is_none().then_some(()))
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn any_pod_is_granted_once_a_minute_and_a_pod_that_is_away_is_refused() -> Result<()> {
    let scene = Scene::with_operator(World::enter().await?, "requests").await?;
    let cluster = scene.cluster("cache", RedisClusterSpec::default()).await?;
    let keys = cluster.write_confirmed("kept", 50, 2).await?;
    let first = cluster.master().await?;

    annotate(&cluster, "any").await?;
    println!("{:?}", cluster.is_told("SwitchoverStarted", SETTLE).await?);
    taken_away(&cluster).await?;
    cluster.settled(SETTLE).await?;
    println!("{:?}", cluster.is_told("SwitchoverCompleted", SETTLE).await?);
    let second = cluster.one_master(SETTLE).await?;
    assert_ne!(second.name, first.name);

    // As a tool would that writes it back.
    annotate(&cluster, "any").await?;
    let told = cluster.is_told("SwitchoverRefused", SETTLE).await?;
    println!("{told:?}");
    assert!(told.note.contains("within a minute"), "{told:?}");
    taken_away(&cluster).await?;

    let pods = cluster.pods().await?;
    let away = pods.iter().find(|pod| pod.name != second.name).context("a replica")?;
    away.kill(Signal::SIGSTOP)?;
    wait_for("it is missed", SETTLE, async || {
        Ok((cluster.condition("ReplicationHealthy").await?.0 == "False").then_some(()))
    })
    .await?;
    annotate(&cluster, &away.name).await?;
    let refused = taken_away(&cluster).await;
    let said = wait_for("the reason is told", Duration::from_secs(20), async || {
        let told = cluster.told().await?;
        let of_pod = |note: &str| note.contains(&format!("moved to {}", away.name));
        Ok(told.into_iter().find(|told| told.reason == "SwitchoverRefused" && of_pod(&told.note)))
    })
    .await;
    away.kill(Signal::SIGCONT)?;
    refused?;
    println!("{:?}", said?);
    assert_eq!(cluster.promotions()?, 2, "the first master and its one successor");
    cluster.settled(SETTLE).await?;
    let master = cluster.one_master(SETTLE).await?;
    assert_eq!(master.uid, second.uid);
    assert_eq!(cluster.missing(&master.ip, &keys).await?, [] as [String; 0]);
    scene.close().await
}
