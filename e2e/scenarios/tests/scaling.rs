//! More pods and fewer, one after the other.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use k8s_openapi::api::core::v1::PersistentVolumeClaim;
use kube::Api;
use kube::api::{ListParams, Patch, PatchParams};
use redis_ha_operator::api::quantity::Quantity;
use redis_ha_operator::api::status::PlanKind;
use redis_ha_operator::api::storage::{Retain, Storage};
use redis_ha_operator::api::{RedisCluster, RedisClusterSpec};
use scenarios::cluster::Cluster;
use scenarios::confirmed::Confirming;
use scenarios::scene::{SETTLE, Scene};
use serde_json::json;
use world::{Signal, World, wait_for};

const NOTHING: [String; 0] = [];

async fn scale(cluster: &mut Cluster, replicas: u32) -> Result<()> {
    let api: Api<RedisCluster> = Api::namespaced(cluster.world.client(), &cluster.namespace);
    let patch = Patch::Merge(json!({"spec": {"replicas": replicas}}));
    api.patch(&cluster.name, &PatchParams::default(), &patch).await?;
    cluster.replicas = replicas;
    cluster.restart_after(Some(Duration::ZERO))
}

/// Waits until so many pods exist and all are in place.
async fn scaled(cluster: &Cluster) -> Result<()> {
    wait_for("the number of pods is as asked", SETTLE, async || {
        let status = cluster.status().await?;
        let wanted = i32::try_from(cluster.replicas)?;
        ensure!(status.replicas == wanted && status.ready_replicas == wanted, "{status:?}");
        Ok(Some(()))
    })
    .await?;
    cluster.settled(SETTLE).await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn three_five_two_one_three_keeps_every_confirmed_key_and_the_master() -> Result<()> {
    let scene = Scene::with_operator(World::enter().await?, "scaling").await?;
    let without = RedisClusterSpec::default();
    for (name, retain) in [("plain", None), ("kept", Some(Retain::Retain)), ("deleted", Some(Retain::Delete))]
    {
        let storage = retain.map(|retain| Storage {
            size: Quantity("64Mi".to_owned()),
            storage_class_name: None,
            retain,
        });
        let mut cluster = scene.cluster(name, RedisClusterSpec { storage, ..without.clone() }).await?;
        let master = cluster.master().await?;
        let promotions = cluster.promotions()?;
        let mut keys = cluster.write_confirmed("at-3", 50, 2).await?;
        // Through the Service: pods and their addresses come and go.
        let through = vec![cluster.service_ip().await?];
        let writer = Confirming::start("all-the-time", through, cluster.password().await?);
        for replicas in [5, 2, 1, 3] {
            scale(&mut cluster, replicas).await?;
            scaled(&cluster).await?;
            let now = cluster.one_master(SETTLE).await?;
            assert_eq!(now.uid, master.uid, "the master stays");
            // Asked again: on a busy machine the answer of the last replica may come too late for the client.
            let more = wait_for("keys are confirmed by every replica", SETTLE, async || {
                cluster.write_confirmed(&format!("at-{replicas}"), 50, replicas - 1).await.map(Some)
            })
            .await?;
            keys.extend(more);
            for pod in cluster.pods().await? {
                ensure!(pod.uid == master.uid || cluster.info(&pod.ip, "role").await? == "slave");
            }
            assert_eq!(cluster.missing(&now.ip, &keys).await?, NOTHING);
            let claims: Api<PersistentVolumeClaim> = Api::namespaced(scene.world.client(), &scene.namespace);
            let ours = ListParams::default().labels(&format!("redis-ha.dev/cluster={name}"));
            let wanted = match retain {
                None => 0,
                Some(Retain::Retain) => 5, // once made, they stay
                Some(Retain::Delete) => replicas,
            };
            wait_for("the claims are as retain says", SETTLE, async || {
                let found = claims.list(&ours).await?.items.len();
                ensure!(found == usize::try_from(wanted)?, "{found} claims, not {wanted}");
                Ok(Some(()))
            })
            .await?;
            let written = writer.keys().len();
            // Alone, the master has nobody who could confirm.
            if replicas > 1 {
                wait_for("the writer's keys are confirmed here", SETTLE, async || {
                    Ok((writer.keys().len() > written).then_some(()))
                })
                .await?;
            }
            println!(
                "{name}: {replicas} pods, {} keys, {wanted} claims; {written} confirmed under load so far",
                keys.len()
            );
        }
        let written = writer.keys();
        drop(writer);
        assert_eq!(cluster.missing(&master.ip, &written).await?, NOTHING, "of {} keys", written.len());
        println!("{name}: {} keys confirmed under load, none is missing", written.len());
        // Nobody was promoted anew; logs of removed pods do not count.
        assert!(cluster.promotions()? <= promotions);
        cluster.delete().await?;
    }
    scene.close().await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_master_that_scaling_in_would_remove_moves_first() -> Result<()> {
    let scene = Scene::with_operator(World::enter().await?, "held").await?;
    let mut cluster = scene.cluster("cache", RedisClusterSpec::default()).await?;
    let old = cluster.master().await?;
    ensure!(old.name == "cache-0", "the first master is {}", old.name);
    old.kill(Signal::SIGKILL)?;
    wait_for("another master", SETTLE, async || {
        Ok((cluster.status().await?.master.as_ref() != Some(&old.name)).then_some(()))
    })
    .await?;
    cluster.settled(SETTLE).await?;
    ensure!(cluster.master().await?.name != old.name);
    let keys = cluster.write_confirmed("kept", 50, 2).await?;
    scale(&mut cluster, 1).await?;
    scaled(&cluster).await?;
    let status = cluster.status().await?;
    let last = status.last_failover.context("the move is on record")?;
    assert_eq!((last.kind, last.reason.as_str()), (PlanKind::Switchover, "ScaleIn"));
    let master = cluster.master().await?;
    assert_eq!(master.name, "cache-0");
    assert_eq!(cluster.missing(&master.ip, &keys).await?, NOTHING);
    scale(&mut cluster, 3).await?;
    scaled(&cluster).await?;
    scene.close().await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_paused_cluster_keeps_its_objects_and_fails_over_all_the_same() -> Result<()> {
    let scene = Scene::with_operator(World::enter().await?, "paused").await?;
    let mut cluster = scene.cluster("cache", RedisClusterSpec::default()).await?;
    let api: Api<RedisCluster> = Api::namespaced(scene.world.client(), &scene.namespace);
    let pause = |paused: bool| Patch::Merge(json!({"spec": {"paused": paused}}));
    api.patch("cache", &PatchParams::default(), &pause(true)).await?;
    println!("{}", cluster.says("Progressing", "False", "Paused", SETTLE).await?);
    scale(&mut cluster, 5).await?;
    let old = cluster.master().await?;
    old.kill(Signal::SIGKILL)?;
    wait_for("another master", SETTLE, async || {
        Ok((cluster.status().await?.master.as_ref() != Some(&old.name)).then_some(()))
    })
    .await?;
    assert_eq!(cluster.status().await?.replicas, 3, "no pod was made");
    api.patch("cache", &PatchParams::default(), &pause(false)).await?;
    scaled(&cluster).await?;
    cluster.says("Progressing", "False", "UpToDate", SETTLE).await?;
    scene.close().await
}
