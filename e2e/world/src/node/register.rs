//! The node's object, its Lease, and the beat that keeps both alive.

use std::time::Duration;

use anyhow::{Context, Result};
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::Node;
use k8s_openapi::jiff::Timestamp;
use kube::api::{Patch, PatchParams, PostParams};
use kube::{Api, Client, ResourceExt};
use serde_json::{Value, json};
use tokio::sync::watch;
use tokio::time::{MissedTickBehavior, interval, sleep, timeout};

use super::kubelet_server;
use crate::addresses::NodeNumber;

const BEAT: Duration = Duration::from_secs(2);
const DEADLINE: Duration = Duration::from_secs(3);
const RETRY: Duration = Duration::from_millis(100);

/// Makes the node known; tries until the API server takes it.
pub async fn register(client: &Client, node: NodeNumber) {
    loop {
        match timeout(DEADLINE, try_register(client, node)).await {
            Ok(Ok(())) => return,
            Ok(Err(error)) => eprintln!("register: {error:#}"),
            Err(_) => eprintln!("register: no answer in {DEADLINE:?}"),
        }
        sleep(RETRY).await;
    }
}

async fn try_register(client: &Client, node: NodeNumber) -> Result<()> {
    let (name, cidr) = (node.name(), node.pod_cidr());
    let nodes = Api::<Node>::all(client.clone());
    let object: Node = serde_json::from_value(json!({
        "metadata": {
            "name": name,
            "labels": {
                "kubernetes.io/hostname": name,
                "kubernetes.io/os": "linux",
                "kubernetes.io/arch": std::env::consts::ARCH,
                "topology.kubernetes.io/zone": format!("zone-{}", node.0),
            },
        },
        "spec": {"podCIDR": cidr, "podCIDRs": [cidr]},
    }))?;
    let created = match nodes.create(&PostParams::default(), &object).await {
        Err(kube::Error::Api(status)) if status.code == 409 => nodes.get(&name).await,
        other => other,
    };
    let uid = created.context("create the node")?.uid().unwrap_or_default();
    set_status(&nodes, node).await?;
    let lease: Lease = serde_json::from_value(json!({
        "metadata": {
            "name": name,
            "ownerReferences": [{"apiVersion": "v1", "kind": "Node", "name": name, "uid": uid}],
        },
        "spec": {"holderIdentity": name, "leaseDurationSeconds": 10, "renewTime": micro()},
    }))?;
    // Its namespace appears a moment after the API server is ready.
    match leases(client).create(&PostParams::default(), &lease).await {
        Err(kube::Error::Api(status)) if status.code == 409 => Ok(()),
        other => other.map(drop).context("create the lease"),
    }
}

/// Renews the lease for ever. `recovered` counts the returns of the API server
/// after it could not be reached.
pub async fn beat(client: Client, node: NodeNumber, recovered: watch::Sender<u64>) {
    let mut beats = interval(BEAT);
    beats.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut lost = false;
    loop {
        beats.tick().await;
        match timeout(DEADLINE, renew(&client, node)).await {
            Ok(Ok(())) => {
                if lost {
                    recovered.send_modify(|count| *count += 1);
                }
                lost = false;
            }
            Ok(Err(error)) => {
                lost = true;
                eprintln!("heartbeat: {error:#}");
            }
            Err(_) => {
                lost = true;
                eprintln!("heartbeat: no answer in {DEADLINE:?}");
            }
        }
    }
}

async fn renew(client: &Client, node: NodeNumber) -> Result<()> {
    let name = node.name();
    let lease = Patch::Merge(json!({"spec": {"holderIdentity": name, "renewTime": micro()}}));
    leases(client).patch(&name, &PatchParams::default(), &lease).await.context("renew the lease")?;
    let nodes = Api::<Node>::all(client.clone());
    let object = nodes.get_status(&name).await.context("read the node")?;
    let conditions = object.status.and_then(|status| status.conditions).unwrap_or_default();
    // The node controller writes Unknown when it has missed some beats.
    if !conditions.iter().any(|it| it.type_ == "Ready" && it.status == "True") {
        set_status(&nodes, node).await?;
    }
    Ok(())
}

async fn set_status(nodes: &Api<Node>, node: NodeNumber) -> Result<()> {
    let patch = Patch::Strategic(json!({"status": status(node)}));
    nodes
        .patch_status(&node.name(), &PatchParams::default(), &patch)
        .await
        .context("set the node's status")?;
    Ok(())
}

/// Plenty of everything: the machine's real limits are the machine's business.
fn status(node: NodeNumber) -> Value {
    let now = Timestamp::now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
    let condition = |kind: &str, status: &str, reason: &str| {
        json!({"type": kind, "status": status, "reason": reason, "message": reason,
               "lastHeartbeatTime": now, "lastTransitionTime": now})
    };
    let room = json!({"cpu": "16", "memory": "32Gi", "pods": "250", "ephemeral-storage": "100Gi"});
    let name = node.name();
    json!({
        "conditions": [
            condition("Ready", "True", "KubeletReady"),
            condition("MemoryPressure", "False", "KubeletHasSufficientMemory"),
            condition("DiskPressure", "False", "KubeletHasNoDiskPressure"),
            condition("PIDPressure", "False", "KubeletHasSufficientPID"),
        ],
        "addresses": [
            {"type": "InternalIP", "address": node.address()},
            {"type": "Hostname", "address": name},
        ],
        "daemonEndpoints": {"kubeletEndpoint": {"Port": kubelet_server::PORT}},
        "capacity": room,
        "allocatable": room,
        "nodeInfo": {
            "kubeletVersion": "v1.34.4", "kubeProxyVersion": "", "operatingSystem": "linux",
            "architecture": std::env::consts::ARCH, "machineID": name, "systemUUID": name, "bootID": name,
            "kernelVersion": "", "osImage": "world", "containerRuntimeVersion": "world://1",
        },
    })
}

fn leases(client: &Client) -> Api<Lease> {
    Api::namespaced(client.clone(), "kube-node-lease")
}

fn micro() -> String {
    Timestamp::now().strftime("%Y-%m-%dT%H:%M:%S.%6fZ").to_string()
}
