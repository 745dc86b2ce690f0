//! Pods with their own network, and what their containers find in them.

use std::collections::BTreeSet;
use std::time::Duration;

use anyhow::{Result, ensure};
use tokio::time::timeout;
use world::{World, wait_for};

use crate::support::{LONG, phase, ping, redis, shell_pod, wait_status};

#[tokio::test]
async fn three_redis_pods_have_own_addresses_and_reach_each_other() -> Result<()> {
    let world = World::enter().await?;
    let namespace = world.create_namespace("redis").await?;
    world.apply(&namespace, &redis(3)).await?;
    let mut pods = Vec::new();
    for ordinal in 0..3 {
        pods.push(world.ready_pod(&namespace, &format!("redis-{ordinal}"), LONG).await?);
    }
    let addresses: BTreeSet<_> = pods.iter().map(|pod| pod.ip.clone()).collect();
    let nodes: BTreeSet<_> = pods.iter().map(|pod| pod.node.clone()).collect();
    assert_eq!((addresses.len(), nodes.len()), (3, 3));
    for pod in &pods {
        ping(&pod.ip, Duration::from_secs(2)).await?;
        for other in &pods {
            assert_eq!(pod.exec(&["redis-cli", "-h", &other.ip, "ping"]).await?.trim(), "PONG");
        }
    }
    world.delete_namespace(&namespace).await
}

#[tokio::test]
async fn a_container_has_its_own_root_host_name_and_processes() -> Result<()> {
    let world = World::enter().await?;
    let namespace = world.create_namespace("root").await?;
    // Kubernetes makes one dollar of two, so the shell sees two.
    let script = "trap exit TERM; echo $$$$ $(hostname) $(ls /home | wc -l); touch /usr/x || echo read-only; \
                  touch /etc/x /tmp/x && echo writable; cat /etc/hosts; while :; do sleep 0.1; done";
    world.apply(&namespace, &shell_pod("alone", script, &[])).await?;
    let pod = world.ready_pod(&namespace, "alone", LONG).await?;
    let log = wait_for("the whole log", LONG, async || {
        let log = pod.log()?;
        Ok(log.contains(&format!("{} alone", pod.ip)).then_some(log))
    })
    .await?;
    assert!(log.starts_with("1 alone 0\n"), "{log}");
    assert!(log.contains("read-only") && log.contains("writable"), "{log}");
    Ok(())
}

#[tokio::test]
async fn a_read_only_root_directory_takes_no_file() -> Result<()> {
    let world = World::enter().await?;
    let namespace = world.create_namespace("read-only").await?;
    let script = "for place in / /etc /tmp /run /dev /dev/shm; do \
                  touch $place/x 2>/dev/null && echo $place; done; echo out >/dev/null && echo done; sleep 1000";
    let context = ["securityContext: {readOnlyRootFilesystem: true}"];
    world.apply(&namespace, &shell_pod("closed", script, &context)).await?;
    let pod = world.ready_pod(&namespace, "closed", LONG).await?;
    let log = wait_for("the whole log", LONG, async || {
        let log = pod.log()?;
        Ok(log.ends_with("done\n").then_some(log))
    })
    .await?;
    assert_eq!(log, "/dev/shm\ndone\n");
    Ok(())
}

#[tokio::test]
async fn variables_come_from_fields_secrets_maps_and_each_other() -> Result<()> {
    let world = World::enter().await?;
    let namespace = world.create_namespace("env").await?;
    let objects = "
apiVersion: v1
kind: Secret
metadata: {name: s}
stringData: {password: hush}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: m}
data: {level: high, COLOUR: red}
";
    world.apply(&namespace, objects).await?;
    let env = "env: [{name: IP, valueFrom: {fieldRef: {fieldPath: status.podIP}}}, \
               {name: APP, valueFrom: {fieldRef: {fieldPath: \"metadata.labels['app']\"}}}, \
               {name: PW, valueFrom: {secretKeyRef: {name: s, key: password}}}, \
               {name: LEVEL, valueFrom: {configMapKeyRef: {name: m, key: level}}}, \
               {name: ALL, value: $(PW)-$(LEVEL)}]";
    let from = "envFrom: [{configMapRef: {name: m}}]";
    let script = "echo $IP $APP $ALL $COLOUR .; exec sleep 1000";
    world.apply(&namespace, &shell_pod("env", script, &[env, from])).await?;
    let pod = world.ready_pod(&namespace, "env", LONG).await?;
    let wanted = format!("{} env hush-high red .\n", pod.ip);
    wait_for("the line", LONG, async || Ok((pod.log()? == wanted).then_some(()))).await
}

#[tokio::test]
async fn init_containers_run_in_order_and_several_containers_share_the_network() -> Result<()> {
    let world = World::enter().await?;
    let namespace = world.create_namespace("several").await?;
    let yaml = r#"
apiVersion: v1
kind: Pod
metadata: {name: several}
spec:
  terminationGracePeriodSeconds: 1
  initContainers:
  - {name: one, image: "redis:7.0", command: [sh, -c, "sleep 0.3; echo one >> /shared/order"], volumeMounts: [{name: shared, mountPath: /shared}]}
  - {name: two, image: "redis:7.0", command: [sh, -c, "echo two >> /shared/order"], volumeMounts: [{name: shared, mountPath: /shared}]}
  containers:
  - {name: server, image: "redis:7.0", args: ["--port", "7000"]}
  - {name: main, image: "redis:7.0", command: [sh, -c, "cat /shared/order; until redis-cli -p 7000 ping; do sleep 0.1; done; exec sleep 1000"], volumeMounts: [{name: shared, mountPath: /shared}]}
  volumes: [{name: shared, emptyDir: {}}]
"#;
    world.apply(&namespace, yaml).await?;
    let pod = world.ready_pod(&namespace, "several", LONG).await?;
    wait_for("the other container's answer", LONG, async || {
        Ok(pod.log_of("main")?.starts_with("one\ntwo\n").then_some(()))
    })
    .await?;
    wait_for("the answer", LONG, async || Ok(pod.log_of("main")?.contains("PONG").then_some(()))).await
}

#[tokio::test]
async fn a_pod_that_may_end_succeeds_or_fails() -> Result<()> {
    let world = World::enter().await?;
    let namespace = world.create_namespace("phases").await?;
    for (name, script, policy) in
        [("good", "exit 0", "Never"), ("bad", "exit 3", "Never"), ("again", "exit 0", "OnFailure")]
    {
        let pod =
            shell_pod(name, script, &[]).replace("spec:\n", &format!("spec:\n  restartPolicy: {policy}\n"));
        world.apply(&namespace, &pod).await?;
    }
    for (name, wanted) in [("good", "Succeeded"), ("bad", "Failed"), ("again", "Succeeded")] {
        wait_for(&format!("{name} to be {wanted}"), LONG, async || {
            Ok((phase(&world, &namespace, name).await? == wanted).then_some(()))
        })
        .await?;
    }
    let status = wait_status(&world, &namespace, "bad", "ended", |_| true).await?;
    assert_eq!(status.state.and_then(|state| state.terminated).map(|ended| ended.exit_code), Some(3));
    world.delete_namespace(&namespace).await
}

#[tokio::test]
async fn an_unknown_image_cannot_be_pulled() -> Result<()> {
    let world = World::enter().await?;
    let namespace = world.create_namespace("image").await?;
    let pod = shell_pod("image", "true", &[]).replace("redis:7.0", "redis:none");
    world.apply(&namespace, &pod).await?;
    wait_status(&world, &namespace, "image", "a pull that backs off", |status| {
        let waiting = status.state.as_ref().and_then(|state| state.waiting.as_ref());
        waiting.and_then(|waiting| waiting.reason.as_deref()) == Some("ImagePullBackOff")
    })
    .await?;
    assert_eq!(phase(&world, &namespace, "image").await?, "Pending");
    world.delete_namespace(&namespace).await
}

#[tokio::test]
async fn kubectl_shows_what_each_run_of_a_container_has_printed() -> Result<()> {
    let world = World::enter().await?;
    let namespace = world.create_namespace("logs").await?;
    let script = "echo one $HOSTNAME; echo two; sleep 1.5; echo three; sleep 1.5";
    world.apply(&namespace, &shell_pod("talker", script, &[])).await?;
    world.set_restart_delay(&namespace, "talker", Some(Duration::from_millis(500)))?;
    world.ready_pod(&namespace, "talker", LONG).await?;
    // Begins in the middle of a run, and ends with it.
    let followed = kubectl(&namespace, &["--follow"]).await?;
    assert_eq!(followed, "one talker\ntwo\nthree\n");
    let previous = wait_for("the log of the previous run", LONG, async || {
        kubectl(&namespace, &["--previous"]).await.map(Some)
    })
    .await?;
    assert_eq!(previous, followed);
    world.set_restart_delay(&namespace, "talker", Some(LONG))?;
    let last = wait_for("the last run has ended", LONG, async || {
        let log = kubectl(&namespace, &[]).await?;
        Ok(log.ends_with("three\n").then_some(log))
    })
    .await?;
    assert_eq!(last, followed, "runs before the last one are not shown");
    assert_eq!(kubectl(&namespace, &["--tail=2"]).await?, "two\nthree\n");
    let error = kubectl(&namespace, &["--since=5s"]).await.unwrap_err().to_string();
    assert!(error.contains("sinceSeconds is not supported"), "{error}");
    Ok(())
}

async fn kubectl(namespace: &str, args: &[&str]) -> Result<String> {
    let mut command = tokio::process::Command::new("kubectl");
    let output = command.args(["logs", "talker", "--namespace", namespace]).args(args).output();
    let output = timeout(LONG, output).await??;
    ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    Ok(String::from_utf8(output.stdout)?)
}
