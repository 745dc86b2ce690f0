//! Faults of the control plane, and who may do what in it.

use std::time::Duration;

use anyhow::Result;
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use kube::Api;
use kube::api::ListParams;
use tokio::time::{Instant, sleep, timeout};
use world::{Process, Signal, World, audit_position, audit_since, connect, wait_for};

use crate::support::{LONG, ping, redis, wait_status};

#[tokio::test]
async fn pods_go_on_and_restart_while_the_api_server_is_down() -> Result<()> {
    let world = World::enter_alone().await?;
    let namespace = world.create_namespace("stopped").await?;
    world.apply(&namespace, &redis(1)).await?;
    let pod = world.ready_pod(&namespace, "redis-0", LONG).await?;
    world.stop_api().await?;
    let maps = Api::<ConfigMap>::namespaced(world.client(), &namespace);
    assert!(maps.list(&ListParams::default()).await.is_err(), "nobody answers");
    pod.kill(Signal::SIGKILL)?;
    wait_for("the server to come back", LONG, async || ping(&pod.ip, Duration::from_secs(1)).await.map(Some))
        .await?;
    world.start_api().await?;
    let status = wait_status(&world, &namespace, "redis-0", "told", |status| {
        status.restart_count == 1 && status.ready
    })
    .await?;
    assert_eq!(status.last_state.and_then(|state| state.terminated).map(|ended| ended.exit_code), Some(137));
    world.delete_namespace(&namespace).await
}

#[tokio::test]
async fn a_frozen_api_server_answers_nothing_and_then_again() -> Result<()> {
    let world = World::enter_alone().await?;
    world.freeze_api().await?;
    let maps = Api::<ConfigMap>::namespaced(world.client(), "default");
    let asked = timeout(Duration::from_secs(1), maps.list(&ListParams::default())).await;
    world.thaw_api().await?;
    assert!(asked.is_err(), "it answered: {asked:?}");
    let thawed = Instant::now();
    maps.list(&ListParams::default()).await?;
    println!("answered {:?} after the thaw", thawed.elapsed());
    Ok(())
}

#[tokio::test]
async fn a_slow_api_server_answers_everything_late_and_is_fast_again_afterwards() -> Result<()> {
    const DELAY: Duration = Duration::from_millis(400);
    let world = World::enter_alone().await?;
    let maps = Api::<ConfigMap>::namespaced(world.client(), "default");
    let asked = async || -> Result<Duration> {
        let begun = Instant::now();
        maps.list(&ListParams::default()).await?;
        Ok(begun.elapsed())
    };
    let slow = world.slow_api(DELAY)?;
    let mut took = Vec::new();
    for _ in 0..10 {
        // More than the moment in which it answers: what is asked now finds it frozen again.
        sleep(DELAY / 4).await;
        took.push(asked().await?);
    }
    slow.end()?;
    took.sort();
    println!("slow: {took:?}");
    assert!(took[5] >= DELAY / 4, "half of the requests were not slow: {took:?}");
    // Also when nobody ends it: dropped in the middle of a freeze.
    let slow = world.slow_api(Duration::from_secs(600))?;
    wait_for("the freeze", LONG, async || {
        Ok(timeout(Duration::from_secs(1), asked()).await.is_err().then_some(()))
    })
    .await?;
    drop(slow);
    println!("fast again: {:?}", timeout(LONG, asked()).await??);
    Ok(())
}

#[tokio::test]
async fn an_account_may_do_what_its_role_says_and_leaves_a_trace() -> Result<()> {
    let world = World::enter().await?;
    let namespace = world.create_namespace("account").await?;
    let objects = "
apiVersion: v1
kind: ServiceAccount
metadata: {name: reader}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata: {name: reader}
rules: [{apiGroups: [''], resources: [configmaps], verbs: [get, list]}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: reader}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: reader}
subjects: [{kind: ServiceAccount, name: reader}]
";
    world.apply(&namespace, objects).await?;
    let kubeconfig = world.service_account_kubeconfig(&namespace, "reader").await?;
    let reader = connect(&kubeconfig).await?;
    let maps = Api::<ConfigMap>::namespaced(reader.clone(), &namespace);
    // The authorizer learns of a new binding a moment after it is written.
    wait_for("the right to list", LONG, async || Ok(Some(maps.list(&ListParams::default()).await?))).await?;

    let position = audit_position()?;
    maps.list(&ListParams::default()).await?;
    let refused = Api::<Secret>::namespaced(reader, &namespace).list(&ListParams::default()).await;
    assert!(matches!(&refused, Err(kube::Error::Api(status)) if status.code == 403), "{refused:?}");
    let user = format!("system:serviceaccount:{namespace}:reader");
    let trace = wait_for("two requests in the audit log", LONG, async || {
        let mine = audit_since(position)?.into_iter().filter(|event| event.user == user);
        let mine: Vec<_> = mine
            .map(|event| (event.verb, event.resource, event.namespace, event.stage, event.code))
            .collect();
        Ok((mine.len() >= 2).then_some(mine))
    })
    .await?;
    let event = |resource: &str, code| {
        ("list".to_owned(), resource.to_owned(), namespace.clone(), "ResponseComplete".to_owned(), code)
    };
    assert_eq!(trace, [event("configmaps", 200), event("secrets", 403)]);
    world.delete_namespace(&namespace).await
}

#[tokio::test]
async fn a_program_runs_beside_the_control_plane() -> Result<()> {
    let _world = World::enter().await?;
    let mut process =
        Process::spawn("greeter", "sh", ["-c", "echo hello $WHO; exec sleep 1000"], [("WHO", "you")])?;
    wait_for("its words", LONG, async || Ok((process.log()? == "hello you\n").then_some(()))).await?;
    process.kill(Signal::SIGTERM)?;
    assert_eq!(process.wait(LONG).await?, 128 + 15);
    Ok(())
}
