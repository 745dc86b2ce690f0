//! Reads through the replicas Service, while masters and replicas die.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use k8s_openapi::api::core::v1::Service;
use kube::Api;
use kube::api::{Patch, PatchParams};
use redis_ha_operator::api::names::replicas_service;
use redis_ha_operator::api::{RedisCluster, RedisClusterSpec};
use scenarios::cluster::Cluster;
use scenarios::reader::{Kind, Reader};
use scenarios::scene::{SETTLE, Scene};
use scenarios::slices::{Addresses, Slices};
use serde_json::json;
use tokio::time::{Instant, sleep};
use world::{PodHandle, Signal, World, wait_for};

/// The replicas' slice comes a second after the master's; less, because both are only looked at now and then.
const AFTER_THE_MASTER: Duration = Duration::from_millis(700);
/// A replica may stay out of sync in the slice as long as the master changes, however busy the machine is.
const LONG_OUT: Duration = Duration::from_secs(20);

/// Waits until everything is in place and the replicas' slice names exactly the replicas; returns the master.
async fn led(cluster: &Cluster, slices: &Slices, after: &str) -> Result<PodHandle> {
    cluster.settled(SETTLE).await?;
    let master = cluster.one_master(SETTLE).await?;
    let pods = cluster.pods().await?;
    let replicas: Addresses = pods.into_iter().map(|pod| pod.ip).filter(|ip| *ip != master.ip).collect();
    wait_for(&format!("the slice names the replicas after {after}"), SETTLE, async || {
        let last = slices.course().last();
        ensure!(last.replicas == replicas, "it names {:?}, not {replicas:?}", last.replicas);
        Ok(Some(()))
    })
    .await?;
    Ok(master)
}

/// Kills the master and judges the order of the slices; returns the new master.
async fn fail_over(cluster: &Cluster, slices: &Slices) -> Result<PodHandle> {
    let old = cluster.master().await?;
    let killed = Instant::now();
    old.kill(Signal::SIGKILL)?;
    wait_for("another master", SETTLE, async || {
        Ok((cluster.status().await?.master.as_ref() != Some(&old.name)).then_some(()))
    })
    .await?;
    let master = led(cluster, slices, "a failover").await?;
    let course = slices.course();
    let moved = course
        .first_after(killed, |led| led.master.contains(&master.ip))
        .context("the master's slice never led to the new master")?;
    let before = course.changes.iter().rfind(|(at, _)| *at <= killed).context("nothing was seen before")?;
    let followed = course
        .first_after(killed, |led| led.replicas != before.1.replicas)
        .context("the replicas' slice did not change")?;
    let between = followed.checked_duration_since(moved).context("the replicas' slice came first")?;
    println!(
        "{} -> {}: the master's slice after {} ms, the replicas' {} ms later",
        old.name,
        master.name,
        (moved - killed).as_millis(),
        between.as_millis()
    );
    ensure!(between >= AFTER_THE_MASTER, "the replicas' slice came {between:?} after the master's");
    Ok(master)
}

async fn replica(cluster: &Cluster, master: &PodHandle) -> Result<PodHandle> {
    cluster.pods().await?.into_iter().find(|pod| pod.uid != master.uid).context("a replica")
}

#[tokio::test(flavor = "multi_thread")]
async fn no_replica_out_of_sync_answers_a_read_through_the_service() -> Result<()> {
    let scene = Scene::with_operator(World::enter().await?, "reads").await?;
    let mut cluster = scene.cluster("cache", RedisClusterSpec::default()).await?;
    let key = cluster.write_confirmed("read", 1, 2).await?.remove(0);
    let services: Api<Service> = Api::namespaced(scene.world.client(), &scene.namespace);
    let service = services.get(&replicas_service(&cluster.name)).await?;
    let address = service.spec.and_then(|spec| spec.cluster_ip).context("the Service has no address")?;
    let slices = Slices::watch(&cluster).await?;
    led(&cluster, &slices, "the start").await?;
    let reader = Reader::start(address, cluster.password().await?, key, "value".to_owned());
    sleep(Duration::from_secs(1)).await;

    let mut master = cluster.master().await?;
    for _ in 0..3 {
        master = fail_over(&cluster, &slices).await?;
    }
    replica(&cluster, &master).await?.kill(Signal::SIGKILL)?;
    sleep(Duration::from_secs(1)).await; // so that what is seen as settled is not what was before
    led(&cluster, &slices, "the kill of a replica").await?;

    let deleted = replica(&cluster, &master).await?;
    scene.world.delete_pod(&deleted.namespace, &deleted.name, None).await?;
    wait_for("its successor", SETTLE, async || {
        Ok((scene.world.pod(&deleted.namespace, &deleted.name).await?.uid != deleted.uid).then_some(()))
    })
    .await?;
    led(&cluster, &slices, "the deletion of a replica").await?;

    // The master is not scaled away.
    while master.name == "cache-2" {
        master = fail_over(&cluster, &slices).await?;
    }
    let objects: Api<RedisCluster> = Api::namespaced(scene.world.client(), &scene.namespace);
    let patch = Patch::Merge(json!({"spec": {"replicas": 2}}));
    objects.patch(&cluster.name, &PatchParams::default(), &patch).await?;
    cluster.replicas = 2;
    wait_for("the third pod is gone", SETTLE, async || {
        Ok((cluster.status().await?.replicas == 2).then_some(()))
    })
    .await?;
    led(&cluster, &slices, "scaling in").await?;

    let only = replica(&cluster, &master).await?;
    let before = reader.reads();
    println!("reads by endpoint, before the only replica is killed:\n{before}");
    scene.world.set_restart_delay(&only.namespace, &only.name, Some(Duration::from_secs(60)))?;
    only.kill(Signal::SIGKILL)?;
    let stand_in = Addresses::from([master.ip.clone()]);
    wait_for("the master stands in", SETTLE, async || {
        let last = slices.course().last().replicas;
        ensure!(last == stand_in, "the slice names {last:?}");
        let answered = reader.reads().answered_by(&master.ip);
        Ok((answered > before.answered_by(&master.ip)).then_some(()))
    })
    .await?;
    scene.world.set_restart_delay(&only.namespace, &only.name, Some(Duration::ZERO))?;
    led(&cluster, &slices, "the return of the only replica").await?;

    let (reads, course) = (reader.reads(), slices.course());
    println!("reads by endpoint, in all:\n{reads}");
    println!(
        "{} looks at the slices, {} changes; a named server was out of sync for at most {:.0?}",
        course.looks,
        course.changes.len(),
        course.longest_out
    );
    assert_eq!(reads.count(|kind| matches!(kind, Kind::Stale | Kind::Wrong(_))), 0, "\n{reads}");
    assert!(reads.count(|kind| *kind == Kind::InSync) > 0, "no replica answered:\n{reads}");
    assert!(
        course.longest_out < LONG_OUT,
        "the slice named a server out of sync for {:?}",
        course.longest_out
    );
    scene.close().await
}
