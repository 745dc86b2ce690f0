//! Disruption budgets `<name>-master` and `<name>-replicas`: which pods a drain of a node may take. Pure.
//!
//! They select by the role label. The minimum is a number, since a maximum of unavailable pods would be counted
//! against the whole StatefulSet, which is more than either selects.

use k8s_openapi::api::policy::v1::{PodDisruptionBudget, PodDisruptionBudgetSpec};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;

use super::{label_selector, metadata};
use crate::api::names;
use crate::core::valid::ValidCluster;

/// The budgets for this many pods. A single pod has none: nothing could ever drain its node.
pub fn build(cluster: &ValidCluster, replicas: u32) -> Vec<PodDisruptionBudget> {
    if replicas < 2 {
        return Vec::new();
    }
    vec![
        budget(cluster, names::master_budget(&cluster.name), names::MASTER_ROLE, 1),
        // One replica at a time.
        budget(cluster, names::replicas_budget(&cluster.name), names::REPLICA_ROLE, replicas - 2),
    ]
}

fn budget(cluster: &ValidCluster, name: String, role: &str, least: u32) -> PodDisruptionBudget {
    let mut selector = label_selector(&cluster.name);
    selector.match_labels.get_or_insert_default().insert(names::ROLE_LABEL.to_owned(), role.to_owned());
    PodDisruptionBudget {
        metadata: metadata(cluster, name),
        spec: Some(PodDisruptionBudgetSpec {
            min_available: i32::try_from(least).ok().map(IntOrString::Int),
            selector: Some(selector),
            ..PodDisruptionBudgetSpec::default()
        }),
        ..PodDisruptionBudget::default()
    }
}
