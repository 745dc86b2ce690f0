//! What happens when a container's main process dies.

use std::time::Duration;

use anyhow::Result;
use tokio::time::Instant;
use world::{Signal, World, wait_for};

use crate::support::{LONG, redis, shell_pod, wait_status};

#[tokio::test]
async fn a_killed_server_comes_back_at_once_as_another_container() -> Result<()> {
    let world = World::enter().await?;
    let namespace = world.create_namespace("kill").await?;
    world.apply(&namespace, &redis(1)).await?;
    let pod = world.ready_pod(&namespace, "redis-0", LONG).await?;
    let before = wait_status(&world, &namespace, "redis-0", "ready", |status| status.ready).await?;
    let pid = pod.pid()?;
    pod.kill(Signal::SIGKILL)?;
    let after = wait_status(&world, &namespace, "redis-0", "back", |status| {
        status.ready && status.restart_count == 1
    })
    .await?;
    let ended = after.last_state.and_then(|state| state.terminated).expect("a last state");
    assert_eq!((ended.exit_code, ended.signal), (137, Some(9)));
    assert_eq!(ended.container_id, before.container_id);
    assert_ne!(after.container_id, before.container_id);
    let again = world.pod(&namespace, "redis-0").await?;
    assert_eq!(again, pod, "the pod itself is the same");
    assert_ne!(again.pid()?, pid);
    assert_eq!(pod.log()?.matches("Ready to accept connections").count(), 2, "the log goes on");
    world.delete_namespace(&namespace).await
}

#[tokio::test]
async fn the_second_restart_waits_ten_seconds() -> Result<()> {
    let world = World::enter().await?;
    let namespace = world.create_namespace("backoff").await?;
    world.apply(&namespace, &shell_pod("crash", "exec sleep 1000", &[])).await?;
    let pod = world.ready_pod(&namespace, "crash", LONG).await?;
    for restart in 1..=2 {
        pod.kill(Signal::SIGKILL)?;
        let killed = Instant::now();
        if restart == 2 {
            wait_status(&world, &namespace, "crash", "backing off", |status| {
                let waiting = status.state.as_ref().and_then(|state| state.waiting.as_ref());
                waiting.and_then(|waiting| waiting.reason.as_deref()) == Some("CrashLoopBackOff")
            })
            .await?;
        }
        wait_status(&world, &namespace, "crash", "running again", |status| {
            status.restart_count == restart && status.ready
        })
        .await?;
        let took = killed.elapsed();
        println!("restart {restart} took {took:?}");
        let wanted = if restart == 1 { 0..5 } else { 10..15 };
        assert!(wanted.contains(&took.as_secs()), "restart {restart} took {took:?}");
    }
    world.delete_namespace(&namespace).await
}

#[tokio::test]
async fn a_test_can_order_the_restart_delay() -> Result<()> {
    let world = World::enter().await?;
    let namespace = world.create_namespace("delay").await?;
    world.apply(&namespace, &shell_pod("slow", "exec sleep 1000", &[])).await?;
    let pod = world.ready_pod(&namespace, "slow", LONG).await?;
    world.set_restart_delay(&namespace, "slow", Some(Duration::from_secs(3)))?;
    pod.kill(Signal::SIGKILL)?;
    let killed = Instant::now();
    wait_status(&world, &namespace, "slow", "back", |status| status.restart_count == 1).await?;
    assert!((3..6).contains(&killed.elapsed().as_secs()), "took {:?}", killed.elapsed());

    // It also ends a wait that has begun, and the kubelet's own.
    world.set_restart_delay(&namespace, "slow", Some(Duration::from_secs(3600)))?;
    pod.kill(Signal::SIGKILL)?;
    wait_status(&world, &namespace, "slow", "waiting", |status| {
        status.state.as_ref().is_some_and(|state| state.waiting.is_some())
    })
    .await?;
    world.set_restart_delay(&namespace, "slow", Some(Duration::ZERO))?;
    wait_status(&world, &namespace, "slow", "back again", |status| status.restart_count == 2).await?;
    world.set_restart_delay(&namespace, "slow", None)?;
    world.delete_namespace(&namespace).await
}

#[tokio::test]
async fn the_death_of_a_shell_ends_its_children() -> Result<()> {
    let world = World::enter().await?;
    let namespace = world.create_namespace("orphans").await?;
    let script = "redis-server --port 7000 --save '' & wait";
    let probe = "readinessProbe: {tcpSocket: {port: 7000}, periodSeconds: 1}";
    world.apply(&namespace, &shell_pod("shell", script, &[probe])).await?;
    let pod = world.ready_pod(&namespace, "shell", LONG).await?;
    pod.kill(Signal::SIGKILL)?;
    wait_for("the second server", LONG, async || {
        Ok((pod.log()?.matches("Ready to accept connections").count() == 2).then_some(()))
    })
    .await?;
    assert!(!pod.log()?.contains("Address already in use"));
    world.delete_namespace(&namespace).await
}
