//! What users add to pods and Services: it must not be in the way of what is the operator's. Pure.

use std::collections::BTreeMap;

use super::Refusal;
use crate::api::names;
use crate::api::pod_template::{OWN_POD_LABELS, PodTemplate};
use crate::api::service::{ServiceOptions, ServiceType};

/// The template without a key of ours.
pub fn pod_template(template: Option<&PodTemplate>) -> Result<PodTemplate, Refusal> {
    let template = template.cloned().unwrap_or_default();
    let ours = template.labels.keys().find(|key| is_ours(key) || OWN_POD_LABELS.contains(&key.as_str()));
    if let Some(key) = ours {
        return Err(Refusal::OwnKey { field: "podTemplate.labels", key: key.clone() });
    }
    no_own_key("podTemplate.annotations", &template.annotations)?;
    // Mounted files belong to root and to this group, and only those may read them.
    let unreadable = template.security_context.as_ref().is_some_and(|context| {
        context.run_as_user.is_some_and(|user| user != 0) && context.fs_group.is_none()
    });
    if unreadable {
        return Err(Refusal::NoFsGroup);
    }
    Ok(template)
}

/// Options that fit to each other. `field` and `annotations` name them in the spec.
pub fn service(
    field: &'static str,
    annotations: &'static str,
    options: Option<&ServiceOptions>,
) -> Result<ServiceOptions, Refusal> {
    let options = options.cloned().unwrap_or_default();
    no_own_key(annotations, &options.annotations)?;
    let balanced = options.load_balancer_class.is_some() || options.load_balancer_source_ranges.is_some();
    if balanced && options.kind != ServiceType::LoadBalancer {
        return Err(Refusal::ServiceType { field, needs: "LoadBalancer" });
    }
    if options.external_traffic_policy.is_some() && options.kind == ServiceType::ClusterIP {
        return Err(Refusal::ServiceType { field, needs: "NodePort or LoadBalancer" });
    }
    Ok(options)
}

fn no_own_key(field: &'static str, map: &BTreeMap<String, String>) -> Result<(), Refusal> {
    match map.keys().find(|key| is_ours(key)) {
        Some(key) => Err(Refusal::OwnKey { field, key: key.clone() }),
        None => Ok(()),
    }
}

fn is_ours(key: &str) -> bool {
    key.strip_prefix(names::GROUP).is_some_and(|rest| rest.starts_with('/'))
}
