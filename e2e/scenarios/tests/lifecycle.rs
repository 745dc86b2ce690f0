//! Pods and processes come and go, one by one and all at once; and the object itself.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::api::core::v1::{ConfigMap, Pod, Secret, Service};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use kube::Api;
use kube::api::ListParams;
use redis_ha_operator::api::RedisClusterSpec;
use redis_ha_operator::api::spec::Persistence;
use scenarios::cluster::Cluster;
use scenarios::confirmed::Confirming;
use scenarios::scene::{SETTLE, Scene};
use tokio::time::{Instant, sleep};
use world::{PodHandle, Signal, World, addresses, wait_for};

fn spec(replicas: i32, persistence: Persistence) -> RedisClusterSpec {
    RedisClusterSpec { replicas, persistence: Some(persistence), ..RedisClusterSpec::default() }
}

const NOTHING: [String; 0] = [];

/// Waits until another process runs in that pod.
async fn restarted(cluster: &Cluster, pod: &PodHandle, run_id: &str) -> Result<()> {
    wait_for("the process is back", SETTLE, async || {
        Ok((cluster.info(&pod.ip, "run_id").await? != run_id).then_some(()))
    })
    .await
}

/// Waits until the pod of this name is another one.
async fn replaced(cluster: &Cluster, pod: &PodHandle) -> Result<()> {
    wait_for("the pod is made anew", SETTLE, async || {
        Ok((cluster.world.pod(&pod.namespace, &pod.name).await?.uid != pod.uid).then_some(()))
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_single_pod_comes_back_with_what_its_disk_holds_and_says_when_that_is_nothing() -> Result<()> {
    let scene = Scene::with_operator(World::enter().await?, "single").await?;
    for persistence in [Persistence::Aof, Persistence::None] {
        let name = format!("{persistence:?}").to_lowercase();
        let cluster = scene.cluster(&name, spec(1, persistence)).await?;
        let keys = cluster.write_confirmed("kept", 50, 0).await?;
        // "Ever had data" goes on record with the next look.
        wait_for("data is on record", SETTLE, async || {
            Ok(cluster.status().await?.supervision.filter(|record| record.ever_had_data))
        })
        .await?;
        let pod = cluster.master().await?;
        let run_id = cluster.info(&pod.ip, "run_id").await?;
        let killed = Instant::now();
        pod.kill(Signal::SIGKILL)?;
        restarted(&cluster, &pod, &run_id).await?;
        cluster.takes_writes(SETTLE).await?;
        println!("{persistence:?}: writable {:.1?} after the kill", killed.elapsed());
        cluster.settled(SETTLE).await?;
        let missing = cluster.missing(&pod.ip, &keys).await?.len();
        if persistence == Persistence::Aof {
            assert_eq!(missing, 0);
        } else {
            assert_eq!(missing, keys.len());
            println!("{:?}", cluster.is_told("DataLost", SETTLE).await?);
        }
        scene.world.delete_pod(&pod.namespace, &pod.name, None).await?;
        replaced(&cluster, &pod).await?;
        cluster.takes_writes(SETTLE).await?;
        cluster.settled(SETTLE).await?;
        cluster.one_master(SETTLE).await?;
        println!("{persistence:?}: pod deleted: {:?}", cluster.is_told("DataLost", SETTLE).await?);
        cluster.delete().await?;
    }
    scene.close().await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_deleted_master_pod_is_replaced() -> Result<()> {
    let scene = Scene::with_operator(World::enter().await?, "deleted").await?;
    let cluster = scene.cluster("cache", RedisClusterSpec::default()).await?;
    for grace in [None, Some(Duration::ZERO)] {
        let promotions = cluster.promotions()?;
        let keys = cluster.write_confirmed(&format!("kept-{grace:?}"), 100, 2).await?;
        let old = cluster.master().await?;
        let deleted = Instant::now();
        scene.world.delete_pod(&old.namespace, &old.name, grace).await?;
        let new = wait_for("another master", SETTLE, async || {
            Ok(cluster.status().await?.master.filter(|now| *now != old.name))
        })
        .await?;
        println!("grace {grace:?}: {new} is master after {:.1?}", deleted.elapsed());
        cluster.takes_writes(SETTLE).await?;
        replaced(&cluster, &old).await?;
        cluster.settled(SETTLE).await?;
        let master = cluster.one_master(SETTLE).await?;
        assert_eq!(cluster.promotions()?, promotions + 1);
        assert_eq!(cluster.missing(&master.ip, &keys).await?, NOTHING);
    }
    scene.close().await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lost_replica_comes_back_and_the_master_stays() -> Result<()> {
    let scene = Scene::with_operator(World::enter().await?, "replica").await?;
    let cluster = scene.cluster("cache", RedisClusterSpec::default()).await?;
    let keys = cluster.write_confirmed("kept", 100, 2).await?;
    let master = cluster.master().await?;
    let name = cluster.pod_names().into_iter().find(|name| *name != master.name).context("a replica")?;
    let replica = || async { cluster.world.pod(&cluster.namespace, &name).await };
    let healed = async |what: &str| {
        cluster.settled(SETTLE).await.with_context(|| what.to_owned())?;
        let now = cluster.one_master(SETTLE).await.with_context(|| what.to_owned())?;
        ensure!(now.uid == master.uid, "{what}: the master is {} now", now.name);
        let missing = cluster.missing(&replica().await?.ip, &["kept-1".to_owned()]).await;
        println!("{what}: healed, full syncs so far {}", cluster.info(&master.ip, "sync_full").await?);
        missing.map(drop)
    };

    let pod = replica().await?;
    let run_id = cluster.info(&pod.ip, "run_id").await?;
    pod.kill(Signal::SIGKILL)?;
    restarted(&cluster, &pod, &run_id).await?;
    healed("process killed").await?;

    scene.world.delete_pod(&pod.namespace, &pod.name, None).await?;
    replaced(&cluster, &pod).await?;
    healed("pod deleted").await?;

    let promotions = cluster.promotions()?;
    let pods = cluster.pods().await?;
    let other =
        pods.iter().find(|pod| pod.name != master.name && pod.name != name).context("another replica")?;
    for (to, port, what) in
        [(other.ip.as_str(), "6379", "pointed at a replica"), ("127.0.0.1", "1", "pointed at nobody")]
    {
        let mut operator = cluster.operator(&replica().await?.ip).await?;
        redis::cmd("REPLICAOF").arg(to).arg(port).query_async::<()>(&mut operator).await?;
        healed(what).await?;
    }
    assert_eq!(cluster.promotions()?, promotions);

    // A second master by hand: it is put back, and its clients are sent away.
    let ip = replica().await?.ip;
    let mut operator = cluster.operator(&ip).await?;
    let mut client = cluster.app(&ip).await?;
    redis::cmd("REPLICAOF").arg("NO").arg("ONE").query_async::<()>(&mut operator).await?;
    wait_for("it follows again", SETTLE, async || {
        Ok((cluster.info(&ip, "role").await? == "slave").then_some(()))
    })
    .await?;
    healed("made master by hand").await?;
    let gone =
        redis::cmd("PING").query_async::<()>(&mut client).await.err().context("its client was kept")?;
    println!("a client of the second master: {gone}");
    assert!(gone.is_io_error() || gone.is_connection_dropped(), "{gone}");
    println!("{:?}", cluster.is_told("OldMasterDemoted", SETTLE).await?);
    assert_eq!(cluster.missing(&master.ip, &keys).await?, NOTHING);
    scene.close().await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_replica_that_never_synced_is_not_promoted() -> Result<()> {
    let scene = Scene::with_operator(World::enter().await?, "never").await?;
    let cluster = scene.cluster("cache", RedisClusterSpec::default()).await?;
    let master = cluster.master().await?;
    let pods = cluster.pods().await?;
    let new = pods.iter().find(|pod| pod.name != master.name).context("a replica")?;
    // Whatever pod comes to that node, it never reaches the master.
    let range = scene.world.pod_range(&new.node)?;
    scene.world.cut(&range, &master.ip).await?;
    scene.world.delete_pod(&new.namespace, &new.name, Some(Duration::ZERO)).await?;
    replaced(&cluster, new).await?;
    scene.world.ready_pod(&new.namespace, &new.name, SETTLE).await?;
    let keys = cluster.write_confirmed("kept", 100, 1).await?;
    sleep(Duration::from_secs(2)).await;
    let promotions = cluster.promotions()?;
    master.kill(Signal::SIGKILL)?;
    let now = wait_for("another master", SETTLE, async || {
        Ok(cluster.status().await?.master.filter(|now| *now != master.name))
    })
    .await?;
    assert_ne!(now, new.name, "a pod without data was promoted");
    println!("{now} was promoted, not {}, which never synced", new.name);
    scene.world.heal(&range, &master.ip).await?;
    cluster.settled(SETTLE).await?;
    let now = cluster.one_master(SETTLE).await?;
    assert_eq!(cluster.promotions()?, promotions + 1);
    assert_eq!(cluster.missing(&now.ip, &keys).await?, NOTHING);
    scene.close().await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_master_restarted_in_place_never_loses_what_its_replicas_hold() -> Result<()> {
    let scene = Scene::with_operator(World::enter().await?, "place").await?;
    for persistence in [Persistence::Aof, Persistence::None] {
        let name = format!("{persistence:?}").to_lowercase();
        let cluster = scene.cluster(&name, spec(3, persistence)).await?;
        let keys = cluster.write_confirmed("kept", 100, 2).await?;
        let promotions = cluster.promotions()?;
        let old = cluster.master().await?;
        let run_id = cluster.info(&old.ip, "run_id").await?;
        old.kill(Signal::SIGKILL)?;
        restarted(&cluster, &old, &run_id).await?;
        cluster.settled(SETTLE).await?;
        let master = cluster.one_master(SETTLE).await?;
        println!("{persistence:?}: {} restarted in place, {} is master", old.name, master.name);
        assert_eq!(cluster.promotions()?, promotions + 1);
        assert_eq!(cluster.missing(&master.ip, &keys).await?, NOTHING);
        cluster.delete().await?;
    }
    scene.close().await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_master_restarted_as_the_only_survivor_is_promoted_again() -> Result<()> {
    let scene = Scene::with_operator(World::enter().await?, "survivor").await?;
    let cluster = scene.cluster("cache", spec(2, Persistence::Aof)).await?;
    let mut keys = cluster.write_confirmed("both", 50, 1).await?;
    let master = cluster.master().await?;
    let pods = cluster.pods().await?;
    let replica = pods.iter().find(|pod| pod.name != master.name).context("a replica")?;
    let long = Some(Duration::from_secs(600));
    scene.world.set_restart_delay(&replica.namespace, &replica.name, long)?;
    replica.kill(Signal::SIGKILL)?;
    cluster.takes_writes(SETTLE).await?; // the quorum is relaxed
    keys.extend(cluster.write_confirmed("alone", 50, 0).await?);
    sleep(Duration::from_secs(2)).await; // for the disk
    let run_id = cluster.info(&master.ip, "run_id").await?;
    let killed = Instant::now();
    master.kill(Signal::SIGKILL)?;
    restarted(&cluster, &master, &run_id).await?;
    cluster.takes_writes(SETTLE).await?;
    println!("writable {:.1?} after the only survivor was killed", killed.elapsed());
    println!("{:?}", cluster.is_told("RecoveryStarted", SETTLE).await?);
    scene.world.set_restart_delay(&replica.namespace, &replica.name, Some(Duration::ZERO))?;
    cluster.settled(SETTLE).await?;
    let now = cluster.one_master(SETTLE).await?;
    assert_eq!(now.uid, master.uid);
    assert_eq!(cluster.missing(&master.ip, &keys).await?, NOTHING);
    assert_eq!(cluster.missing(&replica.ip, &keys).await?, NOTHING);
    scene.close().await
}

#[tokio::test(flavor = "multi_thread")]
async fn an_empty_only_survivor_waits_for_the_others_before_it_says_that_the_data_is_lost() -> Result<()> {
    let scene = Scene::with_operator(World::enter().await?, "empty").await?;
    let cluster = scene.cluster("cache", spec(2, Persistence::None)).await?;
    cluster.write_confirmed("lost", 50, 1).await?;
    let master = cluster.master().await?;
    let pods = cluster.pods().await?;
    let replica = pods.iter().find(|pod| pod.name != master.name).context("a replica")?;
    let long = Some(Duration::from_secs(600));
    scene.world.set_restart_delay(&replica.namespace, &replica.name, long)?;
    replica.kill(Signal::SIGKILL)?;
    cluster.takes_writes(SETTLE).await?;
    master.kill(Signal::SIGKILL)?;
    let said = cluster.says("Held", "True", "NoSafeCandidate", SETTLE).await?;
    println!("while the replica is away: {said}");
    scene.world.set_restart_delay(&replica.namespace, &replica.name, Some(Duration::ZERO))?;
    println!("{:?}", cluster.is_told("DataLost", SETTLE).await?);
    cluster.takes_writes(SETTLE).await?;
    cluster.settled(SETTLE).await?;
    cluster.one_master(SETTLE).await?;
    scene.close().await
}

#[tokio::test(flavor = "multi_thread")]
async fn all_processes_killed_at_once_end_writable_or_in_a_hold_that_says_why() -> Result<()> {
    let scene = Scene::with_operator(World::enter().await?, "all").await?;
    for persistence in [Persistence::None, Persistence::Aof] {
        let name = format!("{persistence:?}").to_lowercase();
        let cluster = scene.cluster(&name, spec(3, persistence)).await?;
        let keys = cluster.write_confirmed("all", 100, 2).await?;
        sleep(Duration::from_secs(2)).await;
        let pods = cluster.pods().await?;
        let killed = Instant::now();
        for pod in &pods {
            pod.kill(Signal::SIGKILL)?;
        }
        sleep(Duration::from_secs(1)).await;
        let held = wait_for("writable, or a hold that says why", SETTLE, async || {
            if cluster.takes_writes(Duration::from_millis(500)).await.is_ok() {
                return Ok(Some(None));
            }
            let status = cluster.status().await?;
            let held = status.conditions.into_iter().find(|it| it.type_ == "Held" && it.status == "True");
            // A hold of a moment is a step on the way.
            let steady = killed.elapsed() > Duration::from_secs(20);
            Ok(held.filter(|_| steady).map(|held| Some(format!("{}: {}", held.reason, held.message))))
        })
        .await?;
        println!(
            "{persistence:?}: after {:.1?}: {}",
            killed.elapsed(),
            held.as_deref().unwrap_or("writable")
        );
        if held.is_none() {
            cluster.settled(SETTLE).await?;
            let master = cluster.one_master(SETTLE).await?;
            let lost = cluster.missing(&master.ip, &keys).await?.len();
            println!("{persistence:?}: {lost} of {} keys lost", keys.len());
            match persistence {
                Persistence::None => println!("{:?}", cluster.is_told("DataLost", SETTLE).await?),
                _ => assert_eq!(lost, 0, "the disks hold them"),
            }
        }
        ensure!(held.is_none() || persistence != Persistence::None, "an empty cluster must be writable");
        cluster.delete().await?;
    }
    scene.close().await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_deleted_cluster_leaves_nothing_behind() -> Result<()> {
    let scene = Scene::with_operators(World::enter().await?, "gone").await?;
    let cluster = scene.cluster("cache", RedisClusterSpec::default()).await?;
    cluster.write_confirmed("gone", 10, 2).await?;
    assert!(left(&cluster).await?.len() >= 10, "the judge sees the objects: {:?}", left(&cluster).await?);
    cluster.delete().await?;
    wait_for("everything is gone", SETTLE, async || {
        let left = left(&cluster).await?;
        ensure!(left.is_empty(), "left behind: {left:?}");
        Ok(Some(()))
    })
    .await?;
    sleep(Duration::from_secs(3)).await;
    assert_eq!(left(&cluster).await?, NOTHING, "something was made again");
    // The name can be used again at once.
    let again = scene.cluster("cache", RedisClusterSpec::default()).await?;
    again.one_master(SETTLE).await?;
    scene.close().await
}

async fn left(cluster: &Cluster) -> Result<Vec<String>> {
    async fn names<K>(cluster: &Cluster) -> Result<Vec<String>>
    where
        K: kube::Resource<DynamicType = (), Scope = k8s_openapi::NamespaceResourceScope>
            + Clone
            + std::fmt::Debug
            + serde::de::DeserializeOwned,
    {
        let api: Api<K> = Api::namespaced(cluster.world.client(), &cluster.namespace);
        let ours = ListParams::default().labels(&format!("redis-ha.dev/cluster={}", cluster.name));
        let found = api.list(&ours).await?.items;
        let name = |object: &K| object.meta().name.clone().unwrap_or_default();
        Ok(found.iter().map(|object| format!("{} {}", K::kind(&()), name(object))).collect())
    }
    let mut all = names::<StatefulSet>(cluster).await?;
    all.extend(names::<Pod>(cluster).await?);
    all.extend(names::<Service>(cluster).await?);
    all.extend(names::<EndpointSlice>(cluster).await?);
    all.extend(names::<PodDisruptionBudget>(cluster).await?);
    all.extend(names::<ConfigMap>(cluster).await?);
    all.extend(names::<Secret>(cluster).await?);
    Ok(all)
}

#[tokio::test(flavor = "multi_thread")]
async fn an_isolated_master_stops_taking_writes_is_replaced_and_its_clients_are_cut() -> Result<()> {
    let scene = Scene::with_operator(World::enter().await?, "isolated").await?;
    let cluster = scene.cluster("cache", RedisClusterSpec::default()).await?;
    let old = cluster.master().await?;
    let pods = cluster.pods().await?;
    let promotions = cluster.promotions()?;
    let mut client = cluster.app(&old.ip).await?;
    let writer = Confirming::start(
        "isolated",
        pods.iter().map(|pod| pod.ip.clone()).collect(),
        cluster.password().await?,
    );
    sleep(Duration::from_millis(500)).await;
    let cut = Instant::now();
    for pod in pods.iter().filter(|pod| pod.name != old.name) {
        scene.world.cut(&pod.ip, &old.ip).await?;
    }
    scene.world.cut(addresses::OUTER, &old.ip).await?;
    let new = wait_for("another master", SETTLE, async || {
        Ok(cluster.status().await?.master.filter(|now| *now != old.name))
    })
    .await?;
    println!("{new} is master {:.1?} after the old one was cut off", cut.elapsed());
    // From inside its own pod: by now nobody acknowledges, so it takes no writes.
    let password = cluster.password().await?;
    let said = old.exec(&["redis-cli", "--no-auth-warning", "-a", &password, "SET", "double", "1"]).await?;
    println!("a write to the isolated master: {}", said.trim());
    assert!(said.contains("NOREPLICAS"), "two masters take writes: {said}");
    for pod in pods.iter().filter(|pod| pod.name != old.name) {
        scene.world.heal(&pod.ip, &old.ip).await?;
    }
    scene.world.heal(addresses::OUTER, &old.ip).await?;
    cluster.settled(SETTLE).await?;
    let master = cluster.one_master(SETTLE).await?;
    let gone =
        redis::cmd("PING").query_async::<()>(&mut client).await.err().context("its client was kept")?;
    println!("a client of the old master: {gone}");
    assert!(gone.is_io_error() || gone.is_connection_dropped(), "{gone}");
    assert_eq!(cluster.promotions()?, promotions + 1);
    let keys = writer.keys();
    drop(writer);
    assert_eq!(cluster.missing(&master.ip, &keys).await?, NOTHING, "{} keys", keys.len());
    println!("{} confirmed keys kept", keys.len());
    scene.close().await
}
