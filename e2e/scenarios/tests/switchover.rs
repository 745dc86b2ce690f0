//! Planned switches on real servers: on request, before a drain, when the master's pod is deleted. Clients write all
//! the time, and every acknowledged write must be there afterwards.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use k8s_openapi::api::core::v1::{Event, Node, Pod};
use kube::api::{DeleteParams, EvictParams, ListParams, Patch, PatchParams};
use kube::{Api, Client, Config};
use redis_ha_operator::api::names::SWITCHOVER_ANNOTATION;
use redis_ha_operator::api::{RedisClusterSpec, status::PlanKind};
use scenarios::bench::{QUIET, Stage, switches};
use scenarios::cluster::Cluster;
use scenarios::operator::BINARY;
use scenarios::scene::{SETTLE, Scene};
use scenarios::writer::{Load, Target, Writer};
use serde_json::json;
use world::{World, wait_for};

/// Clients of the Service that write all the time.
struct Clients(Vec<Writer>);

impl Clients {
    async fn start(cluster: &Cluster) -> Result<Self> {
        let (service, password) = (cluster.service_ip().await?, cluster.password().await?);
        let writer = |number: usize| {
            let load = Load {
                prefix: format!("client-{number}"),
                password: password.clone(),
                pause: Duration::from_millis(2),
                deadline: Duration::from_secs(1),
            };
            Writer::start(Target::Service(service.clone()), load)
        };
        Ok(Self((0..4).map(writer).collect()))
    }

    /// Ends them; every acknowledged write is on the master.
    async fn nothing_lost(self, cluster: &Cluster) -> Result<()> {
        let now = tokio::time::Instant::now();
        for writer in &self.0 {
            writer.acknowledged_after(now, SETTLE).await?;
        }
        let keys: Vec<String> = self.0.into_iter().flat_map(|writer| writer.stop().1).collect();
        let lost = cluster.missing(&cluster.master().await?.ip, &keys).await?;
        println!("{} acknowledged writes, {} lost", keys.len(), lost.len());
        ensure!(keys.len() > 100 && lost.is_empty(), "lost {lost:?}");
        Ok(())
    }
}

/// Sentences of the cluster's Events with this reason.
async fn told(cluster: &Cluster, reason: &str) -> Result<Vec<String>> {
    let events: Api<Event> = Api::namespaced(cluster.world.client(), &cluster.namespace);
    let found = events.list(&ListParams::default().fields(&format!("reason={reason}"))).await?;
    Ok(found.items.into_iter().filter_map(|event| event.message).collect())
}

async fn moved_away(cluster: &Cluster, old: &str) -> Result<()> {
    wait_for("the master was moved", SETTLE, async || Ok((cluster.master().await?.name != old).then_some(())))
        .await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_named_pod_becomes_the_master_under_load_and_nothing_is_lost() -> Result<()> {
    let world = World::enter().await?;
    let stage = Stage::set(&world, BINARY, false, None, &[]).await?;
    let switches = switches::run(&stage, 4, 4, QUIET).await;
    if switches.is_err() {
        eprintln!("{}", stage.operators.logs()?);
    }
    switches?.check()?;
    assert_eq!(stage.cluster.annotation(SWITCHOVER_ANNOTATION).await?, None);
    stage.strike().await
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_not_allowed_is_refused_with_a_sentence_and_taken_away() -> Result<()> {
    let scene = Scene::with_operator(World::enter().await?, "refused").await?;
    let cluster = scene.cluster("cache", RedisClusterSpec::default()).await?;
    let master = cluster.master().await?;
    for (wanted, reason) in [("cache-7", "SwitchoverRefused"), (master.name.as_str(), "SwitchoverNotNeeded")]
    {
        cluster.annotate(SWITCHOVER_ANNOTATION, wanted).await?;
        wait_for("the annotation is taken away", SETTLE, async || {
            Ok(cluster.annotation(SWITCHOVER_ANNOTATION).await?.is_none().then_some(()))
        })
        .await?;
        let said = wait_for("it is said", SETTLE, async || Ok(told(&cluster, reason).await?.pop())).await?;
        println!("{wanted}: {said}");
    }
    assert_eq!(cluster.master().await?.uid, master.uid);
    assert_eq!(cluster.promotions()?, 1);
    scene.close().await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_deleted_master_hands_over_before_it_ends_and_nothing_is_lost() -> Result<()> {
    let scene = Scene::with_operator(World::enter().await?, "deleted").await?;
    let cluster = scene.cluster("cache", RedisClusterSpec::default()).await?;
    let clients = Clients::start(&cluster).await?;
    let old = cluster.master().await?;
    let pods: Api<Pod> = Api::namespaced(scene.world.client(), &scene.namespace);
    pods.delete(&old.name, &DeleteParams::default()).await?;
    moved_away(&cluster, &old.name).await?;
    let status = cluster.settled(SETTLE).await?;
    let last = status.last_failover.context("the change is on record")?;
    assert_eq!((last.kind, last.reason.as_str()), (PlanKind::Switchover, "PodDeleted"));
    clients.nothing_lost(&cluster).await?;
    scene.close().await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_drain_of_the_masters_node_moves_the_master_first_and_goes_through() -> Result<()> {
    // Nodes are everybody's.
    let scene = Scene::with_operator(World::enter_alone().await?, "drained").await?;
    let cluster = scene.cluster("cache", RedisClusterSpec::default()).await?;
    let clients = Clients::start(&cluster).await?;
    let old = cluster.master().await?;
    let nodes: Api<Node> = Api::all(scene.world.client());
    let cordon = async |closed: bool| {
        let patch = Patch::Merge(json!({"spec": {"unschedulable": closed}}));
        nodes.patch(&old.node, &PatchParams::default(), &patch).await
    };
    cordon(true).await?;
    moved_away(&cluster, &old.name).await?;
    // As kubectl drain does: again and again until the budgets let it go.
    let mut config = Config::infer().await.context("find the world's API server")?;
    config.default_retry = false;
    let pods: Api<Pod> = Api::namespaced(Client::try_from(config)?, &cluster.namespace);
    wait_for("the old master's pod may go", SETTLE, async || {
        match pods.evict(&old.name, &EvictParams::default()).await {
            Ok(_) => Ok(Some(())),
            Err(kube::Error::Api(status)) if status.code == 429 => Ok(None),
            Err(error) => Err(error.into()),
        }
    })
    .await?;
    cordon(false).await?;
    let status = cluster.settled(SETTLE).await?;
    let last = status.last_failover.context("the change is on record")?;
    assert_eq!((last.kind, last.reason.as_str()), (PlanKind::Switchover, "NodeDrained"));
    assert_eq!(cluster.promotions()?, 2, "the first master and its successor");
    clients.nothing_lost(&cluster).await?;
    scene.close().await
}
