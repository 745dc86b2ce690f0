//! Volumes: who claims them, what is on them after a restart, and what becomes of them with the object.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use k8s_openapi::api::core::v1::PersistentVolumeClaim;
use kube::api::ListParams;
use kube::{Api, ResourceExt};
use redis_ha_operator::api::quantity::Quantity;
use redis_ha_operator::api::spec::Persistence;
use redis_ha_operator::api::storage::{Retain, Storage};
use redis_ha_operator::api::{RedisClusterSpec, names};
use scenarios::cluster::Cluster;
use scenarios::scene::{SETTLE, Scene};
use tokio::time::sleep;
use world::{PodHandle, Signal, World, wait_for};

const NOTHING: [String; 0] = [];

fn spec(replicas: i32, retain: Retain) -> RedisClusterSpec {
    let storage = Storage { size: Quantity("65536Ki".to_owned()), storage_class_name: None, retain };
    RedisClusterSpec { replicas, storage: Some(storage), ..RedisClusterSpec::default() }
}

async fn claims(cluster: &Cluster) -> Result<Vec<PersistentVolumeClaim>> {
    let api: Api<PersistentVolumeClaim> = Api::namespaced(cluster.world.client(), &cluster.namespace);
    let ours = ListParams::default().labels(&format!("{}={}", names::CLUSTER_LABEL, cluster.name));
    Ok(api.list(&ours).await?.items)
}

/// Waits until every claim says that there was data.
async fn marked(cluster: &Cluster) -> Result<()> {
    wait_for("all claims are marked", SETTLE, async || {
        let claims = claims(cluster).await?;
        let is_marked = |claim: &PersistentVolumeClaim| {
            claim.annotations().get(names::EVER_HAD_DATA_ANNOTATION).is_some_and(|value| value == "true")
        };
        Ok((!claims.is_empty() && claims.iter().all(is_marked)).then_some(()))
    })
    .await
}

/// A pod that is no master.
async fn replica(cluster: &Cluster) -> Result<PodHandle> {
    let master = cluster.master().await?.name;
    let pods = cluster.pods().await?;
    pods.into_iter().find(|pod| pod.name != master).context("a replica")
}

/// Deletes the pod and waits for another one of its name.
async fn made_anew(cluster: &Cluster, pod: &PodHandle) -> Result<PodHandle> {
    cluster.world.delete_pod(&pod.namespace, &pod.name, None).await?;
    wait_for("the pod is made anew", SETTLE, async || {
        let now = cluster.world.ready_pod(&pod.namespace, &pod.name, SETTLE).await?;
        Ok((now.uid != pod.uid).then_some(now))
    })
    .await
}

/// How often servers of this pod found data on their disk when they started.
fn loads(pod: &PodHandle) -> Result<usize> {
    let log = pod.log()?;
    let said = ["DB loaded from append only file", "DB loaded from disk"];
    Ok(said.into_iter().map(|words| log.matches(words).count()).sum())
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_disk_holds_is_loaded_and_a_disk_without_persistence_holds_nothing() -> Result<()> {
    let scene = Scene::with_operator(World::enter().await?, "disks").await?;
    let without = RedisClusterSpec { persistence: Some(Persistence::None), ..RedisClusterSpec::default() };
    let rdb = RedisClusterSpec { persistence: Some(Persistence::Rdb), ..spec(3, Retain::Delete) };
    for (name, spec, kept) in
        [("none", without, false), ("aof", spec(3, Retain::Delete), true), ("rdb", rdb, true)]
    {
        let cluster = scene.cluster(name, spec).await?;
        let keys = cluster.write_confirmed("kept", 100, 2).await?;
        sleep(Duration::from_secs(2)).await; // for the disk: flushed each second
        let pod = replica(&cluster).await?;
        // In place: an AOF is on the disk, save points have not come yet.
        let run_id = cluster.info(&pod.ip, "run_id").await?;
        pod.kill(Signal::SIGKILL)?;
        wait_for("the process is back", SETTLE, async || {
            Ok((cluster.info(&pod.ip, "run_id").await? != run_id).then_some(()))
        })
        .await?;
        cluster.settled(SETTLE).await?;
        assert_eq!(loads(&pod)?, usize::from(name == "aof"), "{name}: the process was killed");
        // Another pod, with the old one's volume if there is one. The old server may write before it ends.
        let pod = made_anew(&cluster, &pod).await?;
        cluster.settled(SETTLE).await?;
        assert_eq!(loads(&pod)?, usize::from(kept), "{name}: the pod was made anew");
        let master = cluster.one_master(SETTLE).await?;
        assert_eq!(cluster.missing(&pod.ip, &keys[..1]).await.err().map(|error| error.to_string()), None);
        println!(
            "{name}: a new pod loads its disk: {kept}; the master served {} full and {} partial syncs",
            cluster.info(&master.ip, "sync_full").await?,
            cluster.info(&master.ip, "sync_partial_ok").await?
        );
        cluster.delete().await?;
    }
    scene.close().await
}

#[tokio::test(flavor = "multi_thread")]
async fn kept_volumes_are_marked_and_their_data_is_not_wiped_by_the_next_object() -> Result<()> {
    let scene = Scene::with_operator(World::enter().await?, "retain").await?;
    let cluster = scene.cluster("cache", spec(3, Retain::Retain)).await?;
    let made = claims(&cluster).await?;
    let mut found: Vec<String> = made.iter().map(ResourceExt::name_any).collect();
    found.sort();
    assert_eq!(found, ["data-cache-0", "data-cache-1", "data-cache-2"]);
    let kept = cluster.write_confirmed("kept", 100, 2).await?;
    marked(&cluster).await?;
    sleep(Duration::from_secs(2)).await; // for the disk
    let promotions = cluster.promotions()?;
    cluster.delete().await?;
    assert_eq!(claims(&cluster).await?.len(), 3, "they stay");

    let again = Cluster::create(&scene.world, &scene.namespace, "cache", spec(3, Retain::Retain)).await?;
    again.restart_after(Some(Duration::ZERO))?;
    let keys = wait_for("every pod has loaded its volume", SETTLE, async || {
        let mut keys = Vec::new();
        for pod in again.pods().await? {
            keys.extend(again.all_info(&pod.ip).await?.remove("db0"));
        }
        Ok((keys.len() == 3).then_some(keys))
    })
    .await?;
    println!("loaded: {keys:?}");
    ensure!(keys.iter().all(|keys| keys.starts_with("keys=100,")), "{keys:?}");
    again.settled(SETTLE).await?;
    assert_eq!(again.promotions()?, promotions + 1, "one pod, with its data");
    for pod in again.pods().await? {
        assert_eq!(again.missing(&pod.ip, &kept).await?, NOTHING, "{}", pod.name);
    }
    again.delete().await?;
    scene.close().await
}

#[tokio::test(flavor = "multi_thread")]
async fn volumes_that_are_not_retained_go_with_the_object() -> Result<()> {
    let scene = Scene::with_operator(World::enter().await?, "delete").await?;
    let cluster = scene.cluster("cache", spec(2, Retain::Delete)).await?;
    let keys = cluster.write_confirmed("gone", 50, 1).await?;
    marked(&cluster).await?;
    cluster.delete().await?;
    wait_for("the claims are gone", SETTLE, async || Ok(claims(&cluster).await?.is_empty().then_some(())))
        .await?;
    let again = scene.cluster("cache", spec(2, Retain::Delete)).await?;
    let master = again.one_master(SETTLE).await?;
    assert_eq!(again.missing(&master.ip, &keys).await?, keys);
    assert_ne!(again.missing(&master.ip, &keys).await?, NOTHING);
    scene.close().await
}
