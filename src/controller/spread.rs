//! Whether pods must, or only should, be on different nodes: asked once, when the StatefulSet is made.

use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::api::core::v1::Node;
use kube::Api;
use kube::api::ListParams;
use tracing::info;

use super::Context;
use super::apply::{self, Error};
use crate::core::objects::stateful_set::Spread;
use crate::core::valid::ValidCluster;

/// What the StatefulSet has; for a new one what the nodes allow.
pub async fn choose(
    ctx: &Context,
    cluster: &ValidCluster,
    live: Option<&StatefulSet>,
) -> Result<Spread, Error> {
    if cluster.pod_template.topology_spread_constraints.is_some() {
        return Ok(Spread::ScheduleAnyway); // not used: the user's own constraints replace it
    }
    if let Some(kept) = live.and_then(Spread::kept) {
        return Ok(kept);
    }
    let nodes: Api<Node> = Api::all(ctx.client.clone());
    let all = ListParams::default();
    match apply::within_deadline("list", "nodes".to_owned(), nodes.list(&all)).await {
        Ok(list) => {
            Ok(Spread::choose(cluster.replicas, list.items.iter().filter(|node| is_usable(node)).count()))
        }
        // An operator for one namespace has no right to see nodes.
        Err(Error::Call { source, .. }) if apply::is_status(&source, 403) => {
            info!(cluster = cluster.name, "may not list nodes: pods are spread over nodes where possible");
            Ok(Spread::ScheduleAnyway)
        }
        Err(error) => Err(error),
    }
}

/// Whether an ordinary pod can be placed there.
fn is_usable(node: &Node) -> bool {
    node.spec.as_ref().is_none_or(|spec| {
        let closed = spec.taints.iter().flatten().any(|taint| taint.effect != "PreferNoSchedule");
        spec.unschedulable != Some(true) && !closed
    })
}
