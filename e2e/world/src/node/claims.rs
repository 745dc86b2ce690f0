//! Local volumes for `PersistentVolumeClaim`s: the scheduler names the node that
//! a claim is for, and that node's pod runner makes a directory and a volume.
//! The stock controllers bind and release them.

use std::path::PathBuf;
use std::pin::pin;
use std::time::Duration;

use anyhow::{Context, Result};
use futures::TryStreamExt;
use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim, PersistentVolumeSpec};
use kube::api::{DeleteParams, PostParams};
use kube::runtime::watcher::{self, Event, watcher};
use kube::{Api, Client, ResourceExt};
use nix::mount::{MntFlags, umount2};
use serde_json::json;
use tokio::time::{sleep, timeout};

use super::volumes::sized;
use crate::addresses::NodeNumber;
use crate::paths;

/// The provisioner's name in the `StorageClass`.
pub const PROVISIONER: &str = "world/local";

/// The default class of the world.
pub fn storage_class() -> serde_json::Value {
    json!({
        "apiVersion": "storage.k8s.io/v1",
        "kind": "StorageClass",
        "metadata": {
            "name": "local",
            "annotations": {"storageclass.kubernetes.io/is-default-class": "true"},
        },
        "provisioner": PROVISIONER,
        // The node is known only when a pod has been scheduled.
        "volumeBindingMode": "WaitForFirstConsumer",
        "reclaimPolicy": "Delete",
    })
}

const DEADLINE: Duration = Duration::from_secs(5);
const RETRY: Duration = Duration::from_millis(300);

/// Serves the claims of a node until a watch breaks.
pub async fn follow(client: &Client, node: NodeNumber) {
    let claims = Api::<PersistentVolumeClaim>::all(client.clone());
    let volumes = Api::<PersistentVolume>::all(client.clone());
    let mut claimed = pin!(watcher(claims, watcher::Config::default()));
    let mut released = pin!(watcher(volumes.clone(), watcher::Config::default()));
    loop {
        let done = tokio::select! {
            event = claimed.try_next() => match event {
                Ok(Some(Event::Apply(claim) | Event::InitApply(claim))) => provide(&volumes, &claim, node).await,
                Ok(Some(_)) => Ok(()),
                Ok(None) | Err(_) => return,
            },
            event = released.try_next() => match event {
                Ok(Some(Event::Apply(volume) | Event::InitApply(volume))) => reclaim(&volumes, &volume, node).await,
                Ok(Some(_)) => Ok(()),
                Ok(None) | Err(_) => return,
            },
        };
        if let Err(error) = done {
            eprintln!("claims: {error:#}");
            // The next watch begins with a list, so nothing is forgotten.
            sleep(RETRY).await;
            return;
        }
    }
}

async fn provide(
    volumes: &Api<PersistentVolume>,
    claim: &PersistentVolumeClaim,
    node: NodeNumber,
) -> Result<()> {
    let annotation = |name: &str| claim.annotations().get(name).map(String::as_str);
    let mine = annotation("volume.kubernetes.io/selected-node") == Some(&node.name())
        && annotation("volume.kubernetes.io/storage-provisioner") == Some(PROVISIONER);
    let Some(spec) = claim.spec.as_ref().filter(|spec| mine && spec.volume_name.is_none()) else {
        return Ok(());
    };
    let uid = claim.uid().unwrap_or_default();
    let name = format!("pvc-{uid}");
    let requests = spec.resources.as_ref().and_then(|resources| resources.requests.as_ref());
    let size = requests.and_then(|requests| requests.get("storage")).context("a claim has no size")?;
    let directory = paths::persistent_volume(&name);
    if !directory.exists() {
        std::fs::create_dir_all(&directory).with_context(|| format!("create {}", directory.display()))?;
        sized(&directory, size)?;
    }
    let volume = serde_json::from_value(json!({
        "metadata": {"name": name, "annotations": {"pv.kubernetes.io/provisioned-by": PROVISIONER}},
        "spec": {
            "capacity": {"storage": size},
            "accessModes": spec.access_modes,
            "persistentVolumeReclaimPolicy": "Delete",
            "storageClassName": spec.storage_class_name,
            "local": {"path": directory},
            "claimRef": {
                "apiVersion": "v1", "kind": "PersistentVolumeClaim", "uid": uid,
                "namespace": claim.namespace(), "name": claim.name_any(),
            },
            "nodeAffinity": {"required": {"nodeSelectorTerms": [{"matchExpressions": [
                {"key": "kubernetes.io/hostname", "operator": "In", "values": [node.name()]},
            ]}]}},
        },
    }))?;
    match timeout(DEADLINE, volumes.create(&PostParams::default(), &volume)).await? {
        Err(kube::Error::Api(status)) if status.code == 409 => Ok(()),
        other => other.map(drop).with_context(|| format!("create volume {name}")),
    }
}

/// Removes a volume whose claim is gone, with its data.
async fn reclaim(volumes: &Api<PersistentVolume>, volume: &PersistentVolume, node: NodeNumber) -> Result<()> {
    let phase = volume.status.as_ref().and_then(|status| status.phase.as_deref());
    let spec = volume.spec.as_ref();
    let delete = spec.and_then(|spec| spec.persistent_volume_reclaim_policy.as_deref()) == Some("Delete");
    let Some(directory) = spec.and_then(|spec| local(spec, node)) else { return Ok(()) };
    if phase != Some("Released") || !delete || volume.metadata.deletion_timestamp.is_some() {
        return Ok(());
    }
    // It is a mount point only where its size could be set.
    let _ = umount2(&directory, MntFlags::MNT_DETACH);
    if directory.exists() {
        std::fs::remove_dir_all(&directory).with_context(|| format!("remove {}", directory.display()))?;
    }
    let name = volume.name_any();
    match timeout(DEADLINE, volumes.delete(&name, &DeleteParams::default())).await? {
        Err(kube::Error::Api(status)) if status.code == 404 => Ok(()),
        other => other.map(drop).with_context(|| format!("delete volume {name}")),
    }
}

/// The directory of a local volume of this node.
fn local(spec: &PersistentVolumeSpec, node: NodeNumber) -> Option<PathBuf> {
    let required = spec.node_affinity.as_ref()?.required.as_ref()?;
    let mut values =
        required.node_selector_terms.iter().flat_map(|term| term.match_expressions.iter().flatten());
    let here = values.any(|it| it.values.iter().flatten().any(|value| *value == node.name()));
    let directory = PathBuf::from(&spec.local.as_ref()?.path);
    (here && directory.starts_with(paths::STATE)).then_some(directory)
}
