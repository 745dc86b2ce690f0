//! `ConfigMap`s and `Secret`s that a pod uses, with the last good copy of each: a
//! container must be able to restart while the API server is away.

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::time::Duration;

use anyhow::{Context, Result};
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use kube::{Api, Client};
use tokio::time::timeout;

const DEADLINE: Duration = Duration::from_secs(2);

pub type Data = BTreeMap<String, Vec<u8>>;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    ConfigMap,
    Secret,
}

/// The objects of one namespace.
pub struct Objects {
    client: Client,
    namespace: String,
    known: BTreeMap<(Kind, String), Option<Data>>,
}

impl Objects {
    pub fn new(client: Client, namespace: String) -> Self {
        Self { client, namespace, known: BTreeMap::new() }
    }

    /// The object's data; nothing when it does not exist and may be missing.
    pub async fn data(&mut self, kind: Kind, name: &str, optional: bool) -> Result<Option<Data>> {
        let key = (kind, name.to_owned());
        match timeout(DEADLINE, self.fetch(kind, name)).await {
            Ok(Ok(data)) => {
                self.known.insert(key.clone(), data);
            }
            Ok(Err(error)) if !self.known.contains_key(&key) => {
                return Err(error).with_context(|| format!("read {kind:?} {name}"));
            }
            Err(_) if !self.known.contains_key(&key) => {
                anyhow::bail!("read {kind:?} {name}: no answer in {DEADLINE:?}");
            }
            Ok(Err(_)) | Err(_) => {}
        }
        let data = self.known.get(&key).cloned().flatten();
        if data.is_none() && !optional {
            anyhow::bail!("{kind:?} {name} does not exist in {}", self.namespace);
        }
        Ok(data)
    }

    /// One key; nothing when it is not there and may be missing.
    pub async fn value(
        &mut self,
        kind: Kind,
        name: &str,
        key: &str,
        optional: bool,
    ) -> Result<Option<String>> {
        let data = self.data(kind, name, optional).await?;
        match data.and_then(|mut data| data.remove(key)) {
            Some(value) => {
                let text = String::from_utf8(value);
                text.map(Some).with_context(|| format!("key {key} of {kind:?} {name} is no text"))
            }
            None if optional => Ok(None),
            None => anyhow::bail!("{kind:?} {name} has no key {key}"),
        }
    }

    async fn fetch(&self, kind: Kind, name: &str) -> Result<Option<Data>> {
        let (client, namespace) = (self.client.clone(), self.namespace.as_str());
        Ok(match kind {
            Kind::ConfigMap => {
                let object = Api::<ConfigMap>::namespaced(client, namespace).get_opt(name).await?;
                object.map(|object| {
                    let text = object.data.unwrap_or_default().into_iter();
                    let binary = object.binary_data.unwrap_or_default().into_iter();
                    text.map(|(key, value)| (key, value.into_bytes()))
                        .chain(binary.map(|(key, value)| (key, value.0)))
                        .collect()
                })
            }
            Kind::Secret => {
                let object = Api::<Secret>::namespaced(client, namespace).get_opt(name).await?;
                object.map(|object| {
                    let data = object.data.unwrap_or_default().into_iter();
                    data.map(|(key, value)| (key, value.0)).collect()
                })
            }
        })
    }
}
