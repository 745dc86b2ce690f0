//! A changed pod template: nothing is restarted by itself, and the pods that have not taken it are named.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use k8s_openapi::api::core::v1::Pod;
use kube::api::{Patch, PatchParams};
use kube::{Api, ResourceExt};
use redis_ha_operator::api::{RedisCluster, RedisClusterSpec};
use scenarios::scene::{SETTLE, Scene};
use serde_json::json;
use tokio::time::sleep;
use world::{World, wait_for};

#[tokio::test(flavor = "multi_thread")]
async fn pods_keep_an_older_template_until_they_are_made_anew_and_are_named_until_then() -> Result<()> {
    let scene = Scene::with_operator(World::enter().await?, "templates").await?;
    let cluster = scene.cluster("cache", RedisClusterSpec::default()).await?;
    let keys = cluster.write_confirmed("kept", 50, 2).await?;
    let objects: Api<RedisCluster> = Api::namespaced(scene.world.client(), &scene.namespace);
    let pods: Api<Pod> = Api::namespaced(scene.world.client(), &scene.namespace);
    let before = cluster.run_ids().await?;
    let change = Patch::Merge(json!({"spec": {"podTemplate": {"labels": {"team": "shop"}}}}));
    objects.patch("cache", &PatchParams::default(), &change).await?;
    let said = cluster.says("Progressing", "True", "RestartPending", SETTLE).await?;
    println!("{said}");
    assert!(said.starts_with("cache-0, cache-1, cache-2 run with"), "{said}");
    sleep(Duration::from_secs(2)).await;
    assert_eq!(cluster.run_ids().await?, before, "nothing was restarted");

    // As docs/operations.md says: replicas first, the master last.
    let master = cluster.master().await?;
    let mut order = cluster.pods().await?;
    order.sort_by_key(|pod| pod.name == master.name);
    for (done, pod) in order.iter().enumerate() {
        scene.world.delete_pod(&pod.namespace, &pod.name, None).await?;
        wait_for("it is made anew", SETTLE, async || {
            let now = pods.get(&pod.name).await?;
            ensure!(now.metadata.uid.as_ref() != Some(&pod.uid), "the old pod is still there");
            Ok(Some(now.labels().get("team").cloned().context("the new pod has an old template")?))
        })
        .await?;
        cluster.settled(SETTLE).await?;
        if done + 1 < order.len() {
            wait_for("only the others are named", SETTLE, async || {
                let said = cluster.says("Progressing", "True", "RestartPending", SETTLE).await?;
                ensure!(!said.contains(&pod.name), "{said}");
                Ok(Some(()))
            })
            .await?;
        }
    }
    cluster.says("Progressing", "False", "UpToDate", SETTLE).await?;
    let master = cluster.one_master(SETTLE).await?;
    assert_eq!(cluster.missing(&master.ip, &keys).await?, [] as [String; 0]);
    scene.close().await
}
