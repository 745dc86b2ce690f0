//! What is left of confirmed writes after restarts of everything, and who decides what without a record.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use futures::future::{try_join_all, try_join3};
use kube::Api;
use kube::api::{Patch, PatchParams};
use redis_ha_operator::api::quantity::Quantity;
use redis_ha_operator::api::spec::Persistence;
use redis_ha_operator::api::storage::{Retain, Storage};
use redis_ha_operator::api::{RedisCluster, RedisClusterSpec};
use scenarios::cluster::Cluster;
use scenarios::scene::{SETTLE, Scene};
use tokio::time::{Instant, sleep};
use world::{PodHandle, Signal, World, wait_for};

/// A start that waits for a pod takes a minute at most, and then some.
const COLD: Duration = Duration::from_secs(120);

/// Append-only files are flushed each second.
const FLUSHED: Duration = Duration::from_millis(1500);

#[derive(Clone, Copy, Debug, PartialEq)]
enum What {
    MasterProcess,
    MasterPod,
    AllProcesses,
    AllPods,
    AllPodsAndTheMastersVolume,
    AllPodsAndAnotherVolume,
}

const ALL: [What; 6] = [
    What::MasterProcess,
    What::MasterPod,
    What::AllProcesses,
    What::AllPods,
    What::AllPodsAndTheMastersVolume,
    What::AllPodsAndAnotherVolume,
];

/// Does a copy of everything confirmed survive this?
fn survives(persistence: Persistence, what: What) -> bool {
    match what {
        What::MasterProcess | What::MasterPod => true,
        // A snapshot is made at save points, and at an orderly end.
        What::AllProcesses => persistence == Persistence::Aof,
        What::AllPods | What::AllPodsAndTheMastersVolume | What::AllPodsAndAnotherVolume => {
            persistence != Persistence::None
        }
    }
}

fn spec(persistence: Persistence) -> RedisClusterSpec {
    let storage = (persistence != Persistence::None).then(|| Storage {
        size: Quantity("65536Ki".to_owned()),
        storage_class_name: None,
        retain: Retain::Delete,
    });
    RedisClusterSpec { persistence: Some(persistence), storage, ..RedisClusterSpec::default() }
}

/// All pods are deleted at the same time; returns when each has a successor.
async fn delete_all(cluster: &Cluster, pods: &[PodHandle]) -> Result<()> {
    try_join_all(pods.iter().map(|pod| cluster.world.delete_pod(&pod.namespace, &pod.name, None))).await?;
    for pod in pods {
        wait_for("the pod is made anew", COLD, async || {
            let now = cluster.world.ready_pod(&pod.namespace, &pod.name, COLD).await?;
            Ok((now.uid != pod.uid).then_some(()))
        })
        .await?;
    }
    Ok(())
}

/// What is on its volume is lost, and its server ends before it can write it anew. (A claim that is made anew may get
/// its place on the node of another pod's volume, and then that pod finds none.)
async fn empty(cluster: &Cluster, pod: &PodHandle) -> Result<()> {
    cluster.world.set_restart_delay(&pod.namespace, &pod.name, Some(COLD))?;
    pod.exec(&["sh", "-c", "rm -rf /data/*"]).await.context("empty the volume")?;
    pod.kill(Signal::SIGKILL)
}

async fn restart(cluster: &Cluster, what: What) -> Result<()> {
    let master = cluster.master().await?;
    let pods = cluster.pods().await?;
    match what {
        What::MasterProcess => master.kill(Signal::SIGKILL),
        What::AllProcesses => pods.iter().try_for_each(|pod| pod.kill(Signal::SIGKILL)),
        What::MasterPod => delete_all(cluster, &[master]).await,
        What::AllPods => delete_all(cluster, &pods).await,
        What::AllPodsAndTheMastersVolume | What::AllPodsAndAnotherVolume => {
            let is_masters = what == What::AllPodsAndTheMastersVolume;
            let pod = pods.iter().find(|pod| (pod.name == master.name) == is_masters).context("a pod")?;
            empty(cluster, pod).await?;
            delete_all(cluster, &pods).await?;
            cluster.restart_after(Some(Duration::ZERO))
        }
    }
}

/// One cluster through all of it, one after the other.
async fn all_restarts(scene: &Scene, name: &str, persistence: Persistence) -> Result<Vec<String>> {
    let cluster = scene.cluster(name, spec(persistence)).await?;
    let mut rows = Vec::new();
    let mut keys = Vec::new();
    for what in ALL {
        if persistence == Persistence::None
            && matches!(what, What::AllPodsAndTheMastersVolume | What::AllPodsAndAnotherVolume)
        {
            continue; // there are no volumes
        }
        keys.extend(cluster.write_confirmed(&format!("{what:?}"), 200, 2).await?);
        sleep(FLUSHED).await;
        let before = cluster.status().await?.epoch;
        let begun = Instant::now();
        restart(&cluster, what).await?;
        wait_for("another decision", COLD, async || {
            Ok((cluster.status().await?.epoch > before).then_some(()))
        })
        .await?;
        let master = cluster.one_master(COLD).await?;
        let writable = begun.elapsed();
        cluster.settled(COLD).await.with_context(|| format!("{name}: {what:?}"))?;
        let missing = cluster.missing(&master.ip, &keys).await?.len();
        let last = cluster.status().await?.last_failover.context("a change is on record")?;
        rows.push(format!(
            "| {name} | {what:?} | {} | {missing} of {} | {:.1} s |",
            last.reason,
            keys.len(),
            writable.as_secs_f64()
        ));
        eprintln!("{}", rows.last().map_or("", String::as_str));
        ensure!(
            missing == 0 || !survives(persistence, what),
            "{name}: {what:?}: {missing} confirmed keys are lost"
        );
        if missing > 0 {
            keys = Vec::new();
        }
    }
    cluster.delete().await?;
    Ok(rows)
}

#[tokio::test(flavor = "multi_thread")]
async fn no_confirmed_key_is_lost_in_any_restart_that_leaves_a_copy() -> Result<()> {
    let scene = Scene::with_operators(World::enter().await?, "cold").await?;
    let (aof, rdb, none) = try_join3(
        Box::pin(all_restarts(&scene, "aof", Persistence::Aof)),
        Box::pin(all_restarts(&scene, "rdb", Persistence::Rdb)),
        Box::pin(all_restarts(&scene, "none", Persistence::None)),
    )
    .await?;
    println!("| persistence | what restarts | decision | confirmed keys missing | writable after |");
    println!("| --- | --- | --- | ---: | ---: |");
    for row in aof.into_iter().chain(rdb).chain(none) {
        println!("{row}");
    }
    scene.close().await
}

/// What the operator said last when it took up kept data.
async fn explained(cluster: &Cluster) -> Result<String> {
    wait_for("the decision is explained", SETTLE, async || {
        let told = cluster.told().await?;
        Ok(told.into_iter().rfind(|told| told.reason == "RecoveryStarted").map(|told| told.note))
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn an_object_made_again_over_kept_volumes_takes_their_data_up() -> Result<()> {
    let mut scene = Scene::with_operator(World::enter().await?, "again").await?;
    let mut kept = spec(Persistence::Aof);
    kept.storage = kept.storage.map(|storage| Storage { retain: Retain::Retain, ..storage });
    let cluster = scene.cluster("cache", kept.clone()).await?;
    let keys = cluster.write_confirmed("kept", 300, 2).await?;
    sleep(FLUSHED).await;
    // The first pod's volume is lost: it comes up first, empty.
    let first = cluster.pods().await?.swap_remove(0);
    scene.kill_operators().await?;
    empty(&cluster, &first).await?;
    cluster.delete().await?;
    scene.start_operator().await?;

    let again = scene.cluster("cache", kept).await?;
    let master = again.one_master(SETTLE).await?;
    println!("{}", explained(&again).await?);
    ensure!(master.name != "cache-0", "an empty pod was preferred to data");
    for pod in again.pods().await? {
        assert_eq!(again.missing(&pod.ip, &keys).await?, [] as [String; 0], "{}", pod.name);
    }
    scene.close().await
}

async fn wipe_status(cluster: &Cluster) -> Result<()> {
    let api: Api<RedisCluster> = Api::namespaced(cluster.world.client(), &cluster.namespace);
    let patch =
        Patch::Json::<()>(serde_json::from_value(serde_json::json!([{"op": "remove", "path": "/status"}]))?);
    api.patch_status(&cluster.name, &PatchParams::default(), &patch).await.context("wipe the status")?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_status_that_was_wiped_is_made_anew_and_costs_no_key() -> Result<()> {
    let mut scene = Scene::with_operator(World::enter().await?, "wiped").await?;
    let cluster = scene.cluster("cache", spec(Persistence::Aof)).await?;
    let keys = cluster.write_confirmed("kept", 300, 2).await?;
    let (master, promotions) = (cluster.master().await?, cluster.promotions()?);

    // While it runs.
    wipe_status(&cluster).await?;
    cluster.settled(SETTLE).await?;
    println!("running: {}", explained(&cluster).await?);
    assert_eq!(cluster.master().await?.name, master.name);
    assert_eq!(cluster.promotions()?, promotions, "nobody needed to be promoted");
    assert_eq!(cluster.missing(&master.ip, &keys).await?, [] as [String; 0]);

    // While nothing of it runs.
    sleep(FLUSHED).await;
    scene.kill_operators().await?;
    let pods = cluster.pods().await?;
    delete_all(&cluster, &pods).await?;
    wipe_status(&cluster).await?;
    scene.start_operator().await?;
    cluster.settled(COLD).await?;
    println!("stopped: {}", explained(&cluster).await?);
    let master = cluster.one_master(SETTLE).await?;
    assert_eq!(cluster.missing(&master.ip, &keys).await?, [] as [String; 0]);
    scene.close().await
}

/// A node's reboot ends all its pods, and their volumes stay on it.
#[tokio::test(flavor = "multi_thread")]
async fn the_reboot_of_the_masters_node_costs_no_confirmed_key() -> Result<()> {
    let scene = Scene::with_operators(World::enter_alone().await?, "reboot").await?;
    let cluster = scene.cluster("cache", spec(Persistence::Aof)).await?;
    let keys = cluster.write_confirmed("kept", 300, 2).await?;
    let old = cluster.master().await?;
    let agent = format!("node-agent-{}", old.node);
    let begun = Instant::now();
    scene.world.stop_component(&agent).await?;
    wait_for("another master", COLD, async || {
        Ok((cluster.status().await?.master.as_deref() != Some(old.name.as_str())).then_some(()))
    })
    .await?;
    println!("another master {:.1?} after the node's end", begun.elapsed());
    scene.world.start_component(&agent).await?;
    cluster.settled(COLD).await?;
    let master = cluster.one_master(SETTLE).await?;
    assert_eq!(cluster.missing(&master.ip, &keys).await?, [] as [String; 0]);
    scene.close().await
}
