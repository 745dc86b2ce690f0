//! How pods end.

use std::time::Duration;

use anyhow::Result;
use k8s_openapi::api::core::v1::Pod;
use kube::Api;
use tokio::time::Instant;
use world::{PodHandle, World, wait_for};

use crate::support::{LONG, redis, shell_pod};

async fn gone(world: &World, pod: &PodHandle) -> Result<Duration> {
    let since = Instant::now();
    let pods = Api::<Pod>::namespaced(world.client(), &pod.namespace);
    wait_for(&format!("{} to be gone", pod.name), LONG, async || {
        let now = pods.get_opt(&pod.name).await?;
        Ok(now.is_none_or(|now| now.metadata.uid.as_ref() != Some(&pod.uid)).then_some(()))
    })
    .await?;
    Ok(since.elapsed())
}

#[tokio::test]
async fn the_hook_runs_before_the_polite_signal() -> Result<()> {
    let world = World::enter().await?;
    let namespace = world.create_namespace("hook").await?;
    let script = "trap 'echo asked to end; exit 0' TERM; echo begun; while :; do sleep 0.05; done";
    let hook = "lifecycle: {preStop: {exec: {command: [sh, -c, \"echo hook >> /proc/1/fd/1; sleep 0.5\"]}}}";
    world.apply(&namespace, &shell_pod("hook", script, &[hook])).await?;
    let pod = world.ready_pod(&namespace, "hook", LONG).await?;
    wait_for("the trap", LONG, async || Ok(pod.log()?.contains("begun").then_some(()))).await?;
    world.delete_pod(&namespace, "hook", None).await?;
    let took = gone(&world, &pod).await?;
    assert_eq!(pod.log()?, "begun\nhook\nasked to end\n");
    assert!(took >= Duration::from_millis(500), "took {took:?}");
    world.delete_namespace(&namespace).await
}

#[tokio::test]
async fn a_deaf_container_is_killed_after_its_grace_period() -> Result<()> {
    let world = World::enter().await?;
    let namespace = world.create_namespace("grace").await?;
    // PID 1 without a handler ignores the polite signal.
    world.apply(&namespace, &shell_pod("deaf", "while :; do sleep 0.1; done", &[])).await?;
    let pod = world.ready_pod(&namespace, "deaf", LONG).await?;
    world.delete_pod(&namespace, "deaf", None).await?;
    let took = gone(&world, &pod).await?;
    assert!((2..5).contains(&took.as_secs()), "took {took:?}");
    world.delete_namespace(&namespace).await
}

#[tokio::test]
async fn a_forced_deletion_ends_the_process_at_once() -> Result<()> {
    let world = World::enter().await?;
    let namespace = world.create_namespace("force").await?;
    world.apply(&namespace, &shell_pod("deaf", "while :; do sleep 0.1; done", &[])).await?;
    let pod = world.ready_pod(&namespace, "deaf", LONG).await?;
    let pid = pod.pid()?;
    world.delete_pod(&namespace, "deaf", Some(Duration::ZERO)).await?;
    let took = gone(&world, &pod).await?;
    assert!(took < Duration::from_secs(1), "took {took:?}");
    wait_for("the process to be gone", Duration::from_secs(2), async || {
        Ok((!std::path::Path::new(&format!("/proc/{pid}")).exists()).then_some(()))
    })
    .await?;
    world.delete_namespace(&namespace).await
}

#[tokio::test]
async fn a_deleted_pod_of_a_set_is_replaced() -> Result<()> {
    let world = World::enter().await?;
    let namespace = world.create_namespace("replace").await?;
    world.apply(&namespace, &redis(1)).await?;
    let old = world.ready_pod(&namespace, "redis-0", LONG).await?;
    world.delete_pod(&namespace, "redis-0", None).await?;
    gone(&world, &old).await?;
    let new = world.ready_pod(&namespace, "redis-0", LONG).await?;
    assert_ne!(new.uid, old.uid);
    assert_ne!(new.ip, old.ip, "an address is used again as late as possible");
    assert_eq!(world::logs(&namespace, "redis-0", "redis")?.len(), 2);
    world.delete_namespace(&namespace).await
}
