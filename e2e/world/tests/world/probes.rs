//! Probes decide about traffic and restarts.

use anyhow::Result;
use world::World;

use crate::support::{LONG, shell_pod, wait_status};

#[tokio::test]
async fn a_failing_readiness_probe_takes_the_pod_out() -> Result<()> {
    let world = World::enter().await?;
    let namespace = world.create_namespace("readiness").await?;
    let probe =
        "readinessProbe: {exec: {command: [test, -e, /tmp/ready]}, periodSeconds: 1, failureThreshold: 1}";
    world.apply(&namespace, &shell_pod("gate", "exec sleep 1000", &[probe])).await?;
    let running = |status: &k8s_openapi::api::core::v1::ContainerStatus| {
        status.state.as_ref().is_some_and(|state| state.running.is_some())
    };
    let status = wait_status(&world, &namespace, "gate", "running", running).await?;
    assert!(!status.ready);
    let pod = world.pod(&namespace, "gate").await?;
    pod.exec(&["touch", "/tmp/ready"]).await?;
    world.ready_pod(&namespace, "gate", LONG).await?;
    pod.exec(&["rm", "/tmp/ready"]).await?;
    let status = wait_status(&world, &namespace, "gate", "not ready", |status| !status.ready).await?;
    assert_eq!(status.restart_count, 0);
    world.delete_namespace(&namespace).await
}

#[tokio::test]
async fn a_failing_liveness_probe_restarts_the_container() -> Result<()> {
    let world = World::enter().await?;
    let namespace = world.create_namespace("liveness").await?;
    let startup = "startupProbe: {exec: {command: [test, -e, /tmp/alive]}, periodSeconds: 1}";
    let liveness =
        "livenessProbe: {exec: {command: [test, -e, /tmp/alive]}, periodSeconds: 1, failureThreshold: 2}";
    let script = "trap 'exit 7' TERM; touch /tmp/alive; while :; do sleep 0.1; done";
    world.apply(&namespace, &shell_pod("alive", script, &[startup, liveness])).await?;
    let pod = world.ready_pod(&namespace, "alive", LONG).await?;
    pod.exec(&["rm", "/tmp/alive"]).await?;
    let status =
        wait_status(&world, &namespace, "alive", "restarted", |status| status.restart_count == 1).await?;
    let ended = status.last_state.and_then(|state| state.terminated);
    assert_eq!(ended.map(|ended| ended.exit_code), Some(7), "the polite signal came first");
    world.delete_namespace(&namespace).await
}

#[tokio::test]
async fn an_http_probe_reads_the_code() -> Result<()> {
    let world = World::enter().await?;
    let namespace = world.create_namespace("http").await?;
    // Perl is part of every base system that these programs come from.
    let server = "use IO::Socket::INET; my $s = IO::Socket::INET->new(LocalPort => 8080, Listen => 5, ReuseAddr => 1); \
                  while (my $c = $s->accept) { my $l = <$c>; my $ok = $l =~ m{GET /good}; \
                  print $c 'HTTP/1.1 ' . ($ok ? '200 OK' : '503 No') . qq(\\r\\n\\r\\n); close $c; }";
    for (name, path) in [("good", "/good"), ("bad", "/bad")] {
        let probe = format!("readinessProbe: {{httpGet: {{path: {path}, port: 8080}}, periodSeconds: 1}}");
        let script = format!("exec perl -e '{}'", server.replace('\'', "\""));
        world.apply(&namespace, &shell_pod(name, &script, &[&probe])).await?;
    }
    world.ready_pod(&namespace, "good", LONG).await?;
    let status = wait_status(&world, &namespace, "bad", "running", |status| {
        status.state.as_ref().is_some_and(|state| state.running.is_some())
    })
    .await?;
    assert!(!status.ready);
    world.delete_namespace(&namespace).await
}
