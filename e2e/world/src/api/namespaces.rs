//! A Kubernetes namespace for each test, so that tests can share a world.

use std::time::Duration;

use anyhow::{Context, Result};
use k8s_openapi::api::core::v1::{Namespace, ServiceAccount};
use kube::api::{DeleteParams, PostParams};
use kube::{Api, ResourceExt};
use serde_json::json;

use super::{World, wait_for};

const DEADLINE: Duration = Duration::from_secs(60);

impl World {
    /// Makes a namespace with a name of its own, ready for pods.
    pub async fn create_namespace(&self, prefix: &str) -> Result<String> {
        let namespace = serde_json::from_value(json!({"metadata": {"generateName": format!("{prefix}-")}}))?;
        let made = Api::<Namespace>::all(self.client()).create(&PostParams::default(), &namespace).await;
        let name = made.with_context(|| format!("create a namespace {prefix}-*"))?.name_any();
        // Pods are refused until the controllers have made it.
        let accounts = Api::<ServiceAccount>::namespaced(self.client(), &name);
        wait_for(&format!("the default account of {name}"), DEADLINE, async || {
            Ok(accounts.get_opt("default").await?)
        })
        .await?;
        Ok(name)
    }

    /// Asks for the end of a namespace and of all in it. Kubernetes takes at
    /// least five seconds for it, so this does not wait.
    pub async fn delete_namespace(&self, name: &str) -> Result<()> {
        let deleted = Api::<Namespace>::all(self.client()).delete(name, &DeleteParams::default()).await;
        deleted.map(drop).with_context(|| format!("delete namespace {name}"))
    }

    /// Waits until a deleted namespace is gone.
    pub async fn namespace_gone(&self, name: &str) -> Result<()> {
        let namespaces = Api::<Namespace>::all(self.client());
        wait_for(&format!("namespace {name} to be gone"), DEADLINE, async || {
            Ok(namespaces.get_opt(name).await?.is_none().then_some(()))
        })
        .await
    }
}
