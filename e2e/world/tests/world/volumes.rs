//! What volumes hold.

use anyhow::Result;
use k8s_openapi::api::core::v1::PersistentVolume;
use kube::Api;
use kube::api::ListParams;
use world::{Signal, World, wait_for};

use crate::support::{LONG, redis, shell_pod, wait_status};

#[tokio::test]
async fn maps_secrets_and_projections_hold_their_content() -> Result<()> {
    let world = World::enter().await?;
    let namespace = world.create_namespace("volumes").await?;
    let objects = "
apiVersion: v1
kind: ConfigMap
metadata: {name: m}
data: {a.txt: from the map, b.txt: not wanted}
---
apiVersion: v1
kind: Secret
metadata: {name: s}
stringData: {key: from the secret}
";
    world.apply(&namespace, objects).await?;
    let mounts = "volumeMounts: [{name: m, mountPath: /m}, {name: m, mountPath: /etc/one, subPath: dir/a}, \
                  {name: s, mountPath: /s, readOnly: true}, {name: all, mountPath: /all}]";
    let script = "cat /m/dir/a /etc/one /s/key /all/key /all/name; ls /m/dir; touch /s/x || echo read-only; \
                  test -s /var/run/secrets/kubernetes.io/serviceaccount/token && echo token; \
                  test -s /var/run/secrets/kubernetes.io/serviceaccount/ca.crt && echo ca; exec sleep 1000";
    let volumes = "
  volumes:
  - {name: m, configMap: {name: m, items: [{key: a.txt, path: dir/a}]}}
  - {name: s, secret: {secretName: s}}
  - {name: all, projected: {sources: [{secret: {name: s}}, {downwardAPI: {items: [{path: name, fieldRef: {fieldPath: metadata.name}}]}}]}}
";
    world
        .apply(&namespace, &format!("{}{volumes}", shell_pod("volumes", script, &[mounts]).trim_end()))
        .await?;
    let pod = world.ready_pod(&namespace, "volumes", LONG).await?;
    let log = wait_for("the last line", LONG, async || {
        let log = pod.log()?;
        Ok(log.contains("\nca\n").then_some(log))
    })
    .await?;
    assert!(log.starts_with("from the mapfrom the mapfrom the secretfrom the secretvolumesa\n"), "{log}");
    assert!(log.contains("read-only\ntoken\nca\n"), "{log}");
    world.delete_namespace(&namespace).await
}

#[tokio::test]
async fn an_empty_directory_outlives_the_container_but_not_the_pod() -> Result<()> {
    let world = World::enter().await?;
    let namespace = world.create_namespace("empty").await?;
    let mounts = "volumeMounts: [{name: data, mountPath: /data}, {name: small, mountPath: /small}]";
    let script = "echo run >> /data/runs; touch /tmp/mine; cat /data/runs | wc -l; exec sleep 1000";
    let volumes = "
  volumes:
  - {name: data, emptyDir: {}}
  - {name: small, emptyDir: {medium: Memory, sizeLimit: 1Mi}}
";
    world
        .apply(&namespace, &format!("{}{volumes}", shell_pod("empty", script, &[mounts]).trim_end()))
        .await?;
    let pod = world.ready_pod(&namespace, "empty", LONG).await?;
    pod.exec(&["touch", "/tmp/of-the-first-run"]).await?;
    assert!(
        pod.exec(&["dd", "if=/dev/zero", "of=/small/x", "bs=1M", "count=2"]).await.is_err(),
        "it is full"
    );
    pod.kill(Signal::SIGKILL)?;
    wait_status(&world, &namespace, "empty", "back", |status| status.restart_count == 1 && status.ready)
        .await?;
    wait_for("the second run", LONG, async || Ok((pod.log()? == "1\n2\n").then_some(()))).await?;
    assert!(pod.exec(&["test", "-e", "/tmp/of-the-first-run"]).await.is_err(), "the root is new");
    world.delete_namespace(&namespace).await
}

#[tokio::test]
async fn a_missing_map_holds_the_pod_until_it_comes() -> Result<()> {
    let world = World::enter().await?;
    let namespace = world.create_namespace("missing").await?;
    let volumes = "\n  volumes: [{name: m, configMap: {name: late}}]\n";
    world
        .apply(&namespace, &format!("{}{volumes}", shell_pod("late", "exec sleep 1000", &[]).trim_end()))
        .await?;
    wait_status(&world, &namespace, "late", "waiting", |status| {
        status.state.as_ref().is_some_and(|state| state.waiting.is_some())
    })
    .await?;
    world
        .apply(&namespace, "{apiVersion: v1, kind: ConfigMap, metadata: {name: late}, data: {a: b}}")
        .await?;
    world.ready_pod(&namespace, "late", LONG).await?;
    world.delete_namespace(&namespace).await
}

#[tokio::test]
async fn a_claim_keeps_its_data_from_pod_to_pod_and_has_a_size() -> Result<()> {
    let world = World::enter().await?;
    let namespace = world.create_namespace("claim").await?;
    let claim = "
  volumeClaimTemplates:
  - metadata: {name: data}
    spec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 4Mi}}}
";
    let set = redis(1).replace("      - {name: data, emptyDir: {}}\n", "");
    world.apply(&namespace, &format!("{}{claim}", set.trim_end())).await?;
    let first = world.ready_pod(&namespace, "redis-0", LONG).await?;
    first.exec(&["sh", "-c", "echo kept > /data/file"]).await?;
    assert!(
        first.exec(&["dd", "if=/dev/zero", "of=/data/x", "bs=1M", "count=5"]).await.is_err(),
        "it is full"
    );
    world.delete_pod(&namespace, "redis-0", None).await?;
    let second = wait_for("the next pod", LONG, async || {
        let pod = world.ready_pod(&namespace, "redis-0", LONG).await?;
        Ok((pod.uid != first.uid).then_some(pod))
    })
    .await?;
    assert_eq!(
        (second.node.clone(), second.exec(&["cat", "/data/file"]).await?),
        (first.node, "kept\n".into())
    );

    world.delete_namespace(&namespace).await?;
    let volumes = Api::<PersistentVolume>::all(world.client());
    wait_for("the volume to be reclaimed", LONG, async || {
        let all = volumes.list(&ListParams::default()).await?;
        let of_ours = |volume: &PersistentVolume| {
            let claim = volume.spec.as_ref().and_then(|spec| spec.claim_ref.as_ref());
            claim.and_then(|claim| claim.namespace.as_ref()) == Some(&namespace)
        };
        Ok((!all.iter().any(of_ours)).then_some(()))
    })
    .await
}
