//! Applies YAML as a user would, on the server's side.

use std::time::Duration;

use anyhow::{Context, Result};
use kube::api::{DynamicObject, Patch, PatchParams};
use kube::core::GroupVersionKind;
use kube::discovery::{Scope, pinned_kind};
use kube::{Api, ResourceExt};
use serde_json::Value;

use super::{World, wait_for};

/// A kind whose definition was applied a moment ago is not served yet.
const DEADLINE: Duration = Duration::from_secs(20);

impl World {
    /// Applies each document of `yaml`; objects that name no namespace go to
    /// `namespace`.
    pub async fn apply(&self, namespace: &str, yaml: &str) -> Result<()> {
        let documents: Vec<Value> = serde_saphyr::from_multiple(yaml).context("read the YAML")?;
        for document in documents.into_iter().filter(|document| !document.is_null()) {
            self.apply_value(namespace, document).await?;
        }
        Ok(())
    }

    /// Applies one object.
    pub async fn apply_value(&self, namespace: &str, object: Value) -> Result<()> {
        let object: DynamicObject = serde_json::from_value(object).context("read an object")?;
        let types = object.types.clone().context("an object has no kind")?;
        let kind = GroupVersionKind::try_from(&types).context("read an object's kind")?;
        let name = object.name_any();
        let what = format!("{} {name} to be applied", kind.kind);
        wait_for(&what, DEADLINE, async || {
            let (resource, capabilities) = match pinned_kind(&self.client, &kind).await {
                Ok(found) => found,
                Err(error) => return Err(error).context("find the kind"),
            };
            let api: Api<DynamicObject> = match capabilities.scope {
                Scope::Cluster => Api::all_with(self.client(), &resource),
                Scope::Namespaced => {
                    let namespace = object.metadata.namespace.as_deref().unwrap_or(namespace);
                    Api::namespaced_with(self.client(), namespace, &resource)
                }
            };
            match api.patch(&name, &PatchParams::apply("test").force(), &Patch::Apply(&object)).await {
                Ok(_) => Ok(Some(Ok(()))),
                // What the server does not like it will not like later either.
                Err(kube::Error::Api(status)) if matches!(status.code, 400 | 401 | 403 | 422) => {
                    Ok(Some(Err(anyhow::anyhow!("apply {} {name}: {}", kind.kind, status.message))))
                }
                Err(error) => Err(error.into()),
            }
        })
        .await?
    }
}
