//! What is known of the nodes on which pods run: whether they are fit, are being emptied, or are lost. Only reads.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use futures::{Stream, StreamExt, pin_mut};
use k8s_openapi::api::core::v1::Node;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::runtime::WatchStreamExt;
use kube::runtime::watcher::{self, Event, watcher};
use kube::{Api, Client, Resource};
use serde::Deserialize;
use tracing::{info, warn};

use super::answer::chain;
use super::watch::Sink;
use crate::core::facts::NodeState;
use crate::supervisor::{ClusterKey, OwnedPod};

/// A watch that says nothing for this long is renewed.
const RENEW_SECONDS: u32 = 60;

/// Taints with which nodes are emptied, besides `kubectl cordon`'s and `kubectl drain`'s own: cluster autoscaler,
/// Karpenter, and the clouds' notices of a node's end.
const EMPTYING: &[&str] = &[
    "node.kubernetes.io/unschedulable",
    "ToBeDeletedByClusterAutoscaler",
    "karpenter.sh/disrupted",
    "karpenter.sh/disruption",
    "cloud.google.com/impending-node-termination",
    "aws-node-termination-handler/spot-itn",
    "aws-node-termination-handler/scheduled-maintenance",
];

/// Taints of a node whose pods may have ended without anybody having seen it.
const LOST: &[&str] =
    &["node.kubernetes.io/out-of-service", "node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"];

/// By name.
type States = BTreeMap<String, NodeState>;

/// Pods with what is known of their nodes: hands both on together, when either changes.
pub struct Placed<S: ?Sized> {
    known: Mutex<Known>,
    sink: Arc<S>,
}

#[derive(Default)]
struct Known {
    pods: BTreeMap<ClusterKey, Vec<OwnedPod>>,
    /// `None`: nodes were not listed, or may not be.
    nodes: Option<States>,
}

impl<S: Sink + ?Sized> Placed<S> {
    pub fn new(sink: Arc<S>) -> Self {
        Self { known: Mutex::default(), sink }
    }

    /// All pods that the cluster has now.
    pub fn pods(&self, cluster: &ClusterKey, pods: Vec<OwnedPod>) {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        self.sink.pods(cluster, placed(&pods, known.nodes.as_ref()));
        if pods.is_empty() {
            known.pods.remove(cluster);
        } else {
            known.pods.insert(cluster.clone(), pods);
        }
    }

    /// All nodes, after a change.
    fn nodes(&self, nodes: &States) {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if known.nodes.as_ref() == Some(nodes) {
            return; // a heartbeat
        }
        let before = known.nodes.replace(nodes.clone());
        for (cluster, pods) in &known.pods {
            let now = placed(pods, Some(nodes));
            if now != placed(pods, before.as_ref()) {
                self.sink.pods(cluster, now);
            }
        }
    }
}

fn placed(pods: &[OwnedPod], nodes: Option<&States>) -> Vec<OwnedPod> {
    let mut pods = pods.to_vec();
    if let Some(nodes) = nodes {
        for OwnedPod { fact, .. } in &mut pods {
            if let Some(node) = &fact.node {
                fact.node_state = nodes.get(node).copied().unwrap_or(NodeState::Lost);
            }
        }
    }
    pods
}

/// Watches all nodes. Ends only when it may not, and need not: an operator for one namespace often has no right to see
/// nodes.
pub async fn watch<S: Sink + ?Sized>(client: Client, needed: bool, placed: Arc<Placed<S>>) {
    let config = watcher::Config::default().timeout(RENEW_SECONDS);
    let events = watcher(Api::<SlimNode>::all(client), config).default_backoff();
    let allowed = events.take_while(|event| {
        let ends = !needed && event.as_ref().is_err_and(is_forbidden);
        if ends {
            info!("may not watch nodes: a master is not moved before its node is drained");
        }
        std::future::ready(!ends)
    });
    follow(allowed, &placed).await;
}

fn is_forbidden(error: &watcher::Error) -> bool {
    let (watcher::Error::InitialListFailed(source) | watcher::Error::WatchStartFailed(source)) = error else {
        return false;
    };
    matches!(source, kube::Error::Api(status) if status.code == 403)
}

async fn follow<S: Sink + ?Sized>(
    events: impl Stream<Item = watcher::Result<Event<SlimNode>>>,
    placed: &Placed<S>,
) {
    let (mut nodes, mut list) = (States::new(), States::new());
    let mut told = false;
    pin_mut!(events);
    while let Some(event) = events.next().await {
        match event {
            Ok(Event::Apply(node)) => nodes.extend(node.entry()),
            Ok(Event::Delete(node)) => {
                nodes.remove(&node.metadata.name.unwrap_or_default());
            }
            Ok(Event::Init) => {
                list.clear();
                continue;
            }
            Ok(Event::InitApply(node)) => {
                list.extend(node.entry());
                continue;
            }
            Ok(Event::InitDone) => nodes = std::mem::take(&mut list),
            Err(error) => {
                if !std::mem::replace(&mut told, true) {
                    warn!(
                        error = chain(&error),
                        "nodes cannot be watched; unless that passes, a master is not moved before its node is drained: \
                         check that the operator's role may list and watch nodes"
                    );
                }
                continue;
            }
        }
        told = false;
        placed.nodes(&nodes);
    }
}

#[derive(Resource, Clone, Debug, Deserialize)]
#[resource(inherit = Node)]
struct SlimNode {
    metadata: ObjectMeta,
    #[serde(default)]
    spec: SlimNodeSpec,
    #[serde(default)]
    status: SlimNodeStatus,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct SlimNodeSpec {
    unschedulable: bool,
    taints: Vec<SlimTaint>,
}

#[derive(Clone, Debug, Deserialize)]
struct SlimTaint {
    key: String,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct SlimNodeStatus {
    conditions: Vec<SlimCondition>,
}

#[derive(Clone, Debug, Deserialize)]
struct SlimCondition {
    #[serde(rename = "type")]
    kind: String,
    status: String,
}

impl SlimNode {
    fn entry(self) -> Option<(String, NodeState)> {
        let state = self.state();
        Some((self.metadata.name?, state))
    }

    /// A node that is not ready is lost, whatever else is done to it.
    fn state(&self) -> NodeState {
        let tainted = |keys: &[&str]| self.spec.taints.iter().any(|taint| keys.contains(&taint.key.as_str()));
        let not_ready = self
            .status
            .conditions
            .iter()
            .any(|condition| condition.kind == "Ready" && condition.status != "True");
        if not_ready || tainted(LOST) {
            NodeState::Lost
        } else if self.spec.unschedulable || tainted(EMPTYING) {
            NodeState::Leaving
        } else {
            NodeState::Fit
        }
    }
}

#[cfg(test)]
mod tests {
    use futures::stream;
    use serde_json::{Value, json};

    use super::*;
    use crate::core::facts::PodFact;
    use crate::supervisor::{WatchedReads, WatchedRoute};

    fn node(name: &str, spec: Value, ready: &str) -> SlimNode {
        serde_json::from_value(json!({"metadata": {"name": name}, "spec": spec,
            "status": {"conditions": [{"type": "MemoryPressure", "status": "False"},
                {"type": "Ready", "status": ready}]}}))
        .unwrap()
    }

    fn taint(key: &str) -> Value {
        json!({"taints": [{"key": key, "effect": "NoSchedule"}]})
    }

    #[test]
    fn a_node_is_fit_leaving_or_lost() {
        for (spec, ready, expected) in [
            (json!({}), "True", NodeState::Fit),
            (taint("node-role.kubernetes.io/control-plane"), "True", NodeState::Fit),
            (json!({"unschedulable": true}), "True", NodeState::Leaving),
            (taint("ToBeDeletedByClusterAutoscaler"), "True", NodeState::Leaving),
            (json!({"unschedulable": true}), "Unknown", NodeState::Lost),
            (json!({}), "False", NodeState::Lost),
            (taint("node.kubernetes.io/out-of-service"), "True", NodeState::Lost),
        ] {
            assert_eq!(node("a", spec.clone(), ready).state(), expected, "{spec} {ready}");
        }
        let young: SlimNode = serde_json::from_value(json!({"metadata": {"name": "a"}})).unwrap();
        assert_eq!(young.state(), NodeState::Fit, "it has said nothing yet");
    }

    #[derive(Default)]
    struct Heard(Mutex<Vec<String>>);

    impl Sink for Heard {
        fn pods(&self, cluster: &ClusterKey, pods: Vec<OwnedPod>) {
            let states: Vec<_> = pods.iter().map(|pod| format!("{:?}", pod.fact.node_state)).collect();
            self.0.lock().unwrap().push(format!("{}: {}", cluster.name, states.join(" ")));
        }
        fn route(&self, _: &ClusterKey, _: Option<WatchedRoute>) {}
        fn reads(&self, _: &ClusterKey, _: Option<WatchedReads>) {}
    }

    fn pod(ordinal: u32, node: &str) -> OwnedPod {
        let fact = PodFact {
            name: format!("cache-{ordinal}"),
            uid: format!("uid-{ordinal}"),
            ordinal,
            ip: None,
            node: Some(node.to_owned()),
            node_state: NodeState::Fit,
            terminating: false,
            role_label: None,
        };
        OwnedPod { owner_uid: None, fact }
    }

    #[tokio::test]
    async fn a_change_of_a_node_reaches_the_clusters_on_it_and_a_heartbeat_nobody() {
        let placed = Placed::new(Arc::new(Heard::default()));
        let key = |name: &str| ClusterKey { namespace: "shop".into(), name: name.into() };
        placed.pods(&key("cache"), vec![pod(0, "a"), pod(1, "b")]);
        placed.pods(&key("other"), vec![pod(0, "b")]);
        let fit = |name: &str| node(name, json!({}), "True");
        let events = stream::iter([
            Ok(Event::Init),
            Ok(Event::InitApply(fit("a"))),
            Ok(Event::InitApply(fit("b"))),
            Ok(Event::InitDone),
            Ok(Event::Apply(fit("a"))),
            Ok(Event::Apply(node("a", json!({"unschedulable": true}), "True"))),
            Err(watcher::Error::NoResourceVersion),
            Ok(Event::Delete(fit("b"))),
        ]);
        follow(events, &placed).await;
        assert_eq!(
            *placed.sink.0.lock().unwrap(),
            ["cache: Fit Fit", "other: Fit", "cache: Leaving Fit", "cache: Leaving Lost", "other: Lost"]
        );
    }
}
