//! A container's environment variables and the fields of its pod.

use std::collections::BTreeMap;

use anyhow::{Context, Result, bail};
use k8s_openapi::api::core::v1::{Container, EnvVarSource, Pod};

use super::images::BUILD;
use super::objects::{Kind, Objects};
use crate::addresses::API_SERVICE;

const PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// What a pod knows of itself.
pub struct Facts<'a> {
    pub pod: &'a Pod,
    pub address: &'a str,
    pub node_address: &'a str,
}

/// The variables of a container, in the order in which they were told.
pub async fn variables(
    container: &Container,
    facts: &Facts<'_>,
    objects: &mut Objects,
) -> Result<Vec<(String, String)>> {
    let mut known: BTreeMap<String, String> = [
        ("PATH", format!("{BUILD}/bin:{BUILD}:{PATH}")),
        ("HOME", "/root".into()),
        ("HOSTNAME", facts.pod.metadata.name.clone().unwrap_or_default()),
        ("KUBERNETES_SERVICE_HOST", API_SERVICE.into()),
        ("KUBERNETES_SERVICE_PORT", "443".into()),
    ]
    .map(|(name, value)| (name.to_owned(), value))
    .into();
    for source in container.env_from.iter().flatten() {
        let prefix = source.prefix.clone().unwrap_or_default();
        let (kind, name, optional) = match (&source.config_map_ref, &source.secret_ref) {
            (Some(map), _) => (Kind::ConfigMap, &map.name, map.optional),
            (None, Some(secret)) => (Kind::Secret, &secret.name, secret.optional),
            (None, None) => continue,
        };
        for (key, value) in objects.data(kind, name, optional == Some(true)).await?.into_iter().flatten() {
            known.insert(format!("{prefix}{key}"), String::from_utf8_lossy(&value).into_owned());
        }
    }
    for variable in container.env.iter().flatten() {
        let value = match &variable.value_from {
            Some(source) => from(source, facts, objects)
                .await
                .with_context(|| format!("find the value of variable {}", variable.name))?,
            None => Some(expand(variable.value.as_deref().unwrap_or_default(), &known)),
        };
        if let Some(value) = value {
            known.insert(variable.name.clone(), value);
        }
    }
    Ok(known.into_iter().collect())
}

async fn from(source: &EnvVarSource, facts: &Facts<'_>, objects: &mut Objects) -> Result<Option<String>> {
    if let Some(field) = &source.field_ref {
        return facts.field(&field.field_path).map(Some);
    }
    if let Some(key) = &source.secret_key_ref {
        return objects.value(Kind::Secret, &key.name, &key.key, key.optional == Some(true)).await;
    }
    if let Some(key) = &source.config_map_key_ref {
        return objects.value(Kind::ConfigMap, &key.name, &key.key, key.optional == Some(true)).await;
    }
    bail!("this kind of source is not supported by the pod runner")
}

impl Facts<'_> {
    /// A field by its path, as the downward API names them.
    pub fn field(&self, path: &str) -> Result<String> {
        let metadata = &self.pod.metadata;
        let spec = self.pod.spec.as_ref();
        let text = |field: Option<&String>| field.cloned().unwrap_or_default();
        Ok(match path {
            "metadata.name" => text(metadata.name.as_ref()),
            "metadata.namespace" => text(metadata.namespace.as_ref()),
            "metadata.uid" => text(metadata.uid.as_ref()),
            "spec.nodeName" => text(spec.and_then(|spec| spec.node_name.as_ref())),
            "spec.serviceAccountName" => text(spec.and_then(|spec| spec.service_account_name.as_ref())),
            "status.podIP" | "status.podIPs" => self.address.to_owned(),
            "status.hostIP" | "status.hostIPs" => self.node_address.to_owned(),
            "metadata.labels" => lines(metadata.labels.as_ref()),
            "metadata.annotations" => lines(metadata.annotations.as_ref()),
            _ => {
                let (map, key) = path.split_once("['").with_context(|| format!("unknown field {path}"))?;
                let map = match map {
                    "metadata.labels" => metadata.labels.as_ref(),
                    "metadata.annotations" => metadata.annotations.as_ref(),
                    _ => bail!("unknown field {path}"),
                };
                text(map.and_then(|map| map.get(key.trim_end_matches("']"))))
            }
        })
    }
}

fn lines(map: Option<&BTreeMap<String, String>>) -> String {
    map.into_iter().flatten().map(|(key, value)| format!("{key}={value:?}")).collect::<Vec<_>>().join("\n")
}

/// Puts known variables in place of `$(NAME)`; `$$` stands for one `$`, and an
/// unknown name stays as it is.
pub fn expand(text: &str, known: &BTreeMap<String, String>) -> String {
    let mut out = String::new();
    let mut rest = text;
    while let Some((before, after)) = rest.split_once('$') {
        out.push_str(before);
        if let Some(after) = after.strip_prefix('$') {
            out.push('$');
            rest = after;
            continue;
        }
        let name = after.strip_prefix('(').and_then(|inner| inner.split_once(')'));
        if let Some((value, tail)) = name.and_then(|(name, tail)| Some((known.get(name)?, tail))) {
            out.push_str(value);
            rest = tail;
        } else {
            out.push('$');
            rest = after;
        }
    }
    out + rest
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_known_variables_are_replaced() {
        let known = BTreeMap::from([("A".to_owned(), "1".to_owned())]);
        assert_eq!(expand("x$(A)y $(B) $$(A) $A", &known), "x1y $(B) $(A) $A");
    }
}
