//! Disruption budgets, by the API that `kubectl drain` uses.

use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use k8s_openapi::api::core::v1::{Node, Pod};
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use kube::api::{EvictParams, ListParams, Patch, PatchParams};
use kube::{Api, Client, Config};
use redis_ha_operator::api::{RedisCluster, RedisClusterSpec, names};
use scenarios::cluster::Cluster;
use scenarios::scene::{SETTLE, Scene};
use serde_json::json;
use world::{PodHandle, World, wait_for};

/// Asks for the eviction; returns the sentences of a refusal.
async fn evict(cluster: &Cluster, pod: &PodHandle) -> Result<Option<String>> {
    // A client of the usual kind would ask again for minutes.
    let mut config = Config::infer().await.context("find the world's API server")?;
    config.default_retry = false;
    let pods: Api<Pod> = Api::namespaced(Client::try_from(config)?, &cluster.namespace);
    match pods.evict(&pod.name, &EvictParams::default()).await {
        Ok(_) => Ok(None),
        Err(kube::Error::Api(status)) if status.code == 429 => {
            let causes = status.details.iter().flat_map(|details| &details.causes);
            let causes: Vec<&str> = causes.map(|cause| cause.message.as_str()).collect();
            Ok(Some(format!("{} {}", status.message, causes.join(" "))))
        }
        Err(error) => Err(error).context("no answer about the eviction"),
    }
}

/// Waits until both budgets have counted so many healthy pods.
async fn counted(cluster: &Cluster, replicas: i32) -> Result<()> {
    let budgets: Api<PodDisruptionBudget> = Api::namespaced(cluster.world.client(), &cluster.namespace);
    wait_for("the budgets have counted the pods", SETTLE, async || {
        for (name, healthy) in
            [(names::master_budget(&cluster.name), 1), (names::replicas_budget(&cluster.name), replicas)]
        {
            let budget = budgets.get(&name).await?;
            let status = budget.status.context("no status yet")?;
            ensure!(status.observed_generation == budget.metadata.generation, "{name} is being counted");
            ensure!(status.current_healthy == healthy, "{name} counts {}", status.current_healthy);
        }
        Ok(Some(()))
    })
    .await
}

async fn set_unschedulable(world: &World, node: &str, unschedulable: bool) -> Result<()> {
    let nodes: Api<Node> = Api::all(world.client());
    let patch = Patch::Merge(json!({"spec": {"unschedulable": unschedulable}}));
    nodes.patch(node, &PatchParams::default(), &patch).await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_drain_takes_one_replica_at_a_time_and_never_the_master() -> Result<()> {
    // Nodes are everybody's.
    let scene = Scene::with_operator(World::enter_alone().await?, "budgets").await?;
    let cluster = scene.cluster("cache", RedisClusterSpec::default()).await?;
    counted(&cluster, 2).await?;
    let master = cluster.master().await?;
    let said = evict(&cluster, &master).await?.context("the master was evicted")?;
    println!("the master: {said}");
    assert!(said.contains("disruption budget cache-master needs 1 healthy pods"), "{said}");

    let pods = cluster.pods().await?;
    let replicas: Vec<&PodHandle> = pods.iter().filter(|pod| pod.name != master.name).collect();
    let [first, second] = replicas.as_slice() else { bail!("two replicas") };
    set_unschedulable(&scene.world, &first.node, true).await?;
    assert_eq!(evict(&cluster, first).await?, None, "a replica may go");
    let said = evict(&cluster, second).await?.context("both replicas were evicted")?;
    println!("the other replica: {said}");
    assert!(said.contains("disruption budget cache-replicas needs 1 healthy pods"), "{said}");
    wait_for("the replica runs on another node", SETTLE, async || {
        let now = scene.world.ready_pod(&first.namespace, &first.name, SETTLE).await?;
        Ok((now.uid != first.uid && now.node != first.node).then_some(()))
    })
    .await?;
    cluster.settled(SETTLE).await?;
    counted(&cluster, 2).await?;
    assert_eq!(evict(&cluster, second).await?, None, "now the other one may go");
    set_unschedulable(&scene.world, &first.node, false).await?;
    cluster.settled(SETTLE).await?;
    assert_eq!(cluster.one_master(SETTLE).await?.uid, master.uid, "the master stays");
    scene.close().await
}

#[tokio::test(flavor = "multi_thread")]
async fn budgets_follow_the_number_of_pods_and_a_single_pod_has_none() -> Result<()> {
    let scene = Scene::with_operator(World::enter().await?, "follow").await?;
    let mut cluster =
        scene.cluster("cache", RedisClusterSpec { replicas: 1, ..RedisClusterSpec::default() }).await?;
    let budgets: Api<PodDisruptionBudget> = Api::namespaced(scene.world.client(), &scene.namespace);
    let objects: Api<RedisCluster> = Api::namespaced(scene.world.client(), &scene.namespace);
    for replicas in [2, 1] {
        let patch = Patch::Merge(json!({"spec": {"replicas": replicas}}));
        objects.patch("cache", &PatchParams::default(), &patch).await?;
        cluster.replicas = replicas;
        cluster.restart_after(Some(Duration::ZERO))?;
        wait_for("the budgets follow", SETTLE, async || {
            let found = budgets.list(&ListParams::default()).await?.items.len();
            Ok((found == if replicas == 1 { 0 } else { 2 }).then_some(()))
        })
        .await?;
        cluster.settled(SETTLE).await?;
    }
    let only = cluster.master().await?;
    assert_eq!(evict(&cluster, &only).await?, None, "a drain is not blocked for ever");
    scene.close().await
}
