//! Services through the real kube-proxy.

use std::time::Duration;

use anyhow::Result;
use k8s_openapi::api::core::v1::Service;
use kube::Api;
use world::{World, wait_for};

use crate::support::{LONG, ping, redis};

async fn cluster_ip(world: &World, namespace: &str, name: &str) -> Result<String> {
    let service = Api::<Service>::namespaced(world.client(), namespace).get(name).await?;
    Ok(service.spec.and_then(|spec| spec.cluster_ip).unwrap_or_default())
}

#[tokio::test]
async fn a_service_with_a_selector_is_reached_from_outside_and_from_pods() -> Result<()> {
    let world = World::enter().await?;
    let namespace = world.create_namespace("service").await?;
    world.apply(&namespace, &redis(3)).await?;
    let service = "{apiVersion: v1, kind: Service, metadata: {name: all}, \
                   spec: {selector: {app: redis}, ports: [{port: 6379}]}}";
    world.apply(&namespace, service).await?;
    let ip = cluster_ip(&world, &namespace, "all").await?;
    for ordinal in 0..3 {
        let pod = world.ready_pod(&namespace, &format!("redis-{ordinal}"), LONG).await?;
        wait_for("an answer to the pod", LONG, async || {
            let answer = pod.exec(&["timeout", "1", "redis-cli", "-h", &ip, "ping"]).await?;
            Ok((answer.trim() == "PONG").then_some(()))
        })
        .await?;
    }
    wait_for("an answer", LONG, async || ping(&ip, Duration::from_secs(1)).await.map(Some)).await?;
    world.delete_namespace(&namespace).await
}

#[tokio::test]
async fn a_hand_written_slice_leads_to_the_pod_it_names() -> Result<()> {
    let world = World::enter().await?;
    let namespace = world.create_namespace("slice").await?;
    world.apply(&namespace, &redis(2)).await?;
    let service = "{apiVersion: v1, kind: Service, metadata: {name: master}, spec: {ports: [{port: 6379, name: redis}]}}";
    world.apply(&namespace, service).await?;
    let ip = cluster_ip(&world, &namespace, "master").await?;
    for name in ["redis-0", "redis-1"] {
        let pod = world.ready_pod(&namespace, name, LONG).await?;
        pod.exec(&["redis-cli", "set", "me", name]).await?;
        let slice = format!(
            "{{apiVersion: discovery.k8s.io/v1, kind: EndpointSlice, metadata: {{name: master, \
             labels: {{kubernetes.io/service-name: master}}}}, addressType: IPv4, \
             ports: [{{name: redis, port: 6379}}], endpoints: [{{addresses: [{}]}}]}}",
            pod.ip
        );
        world.apply(&namespace, &slice).await?;
        wait_for(&format!("the Service to lead to {name}"), LONG, async || {
            let asked = pod.exec(&["timeout", "1", "redis-cli", "-h", &ip, "get", "me"]).await?;
            Ok((asked.trim() == name).then_some(()))
        })
        .await?;
    }
    world.delete_namespace(&namespace).await
}
