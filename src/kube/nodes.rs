//! What is known of the nodes on which pods run: whether they are fit, are being emptied, or are lost. Only reads.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures::{Stream, StreamExt, pin_mut};
use k8s_openapi::api::core::v1::Node;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::runtime::WatchStreamExt;
use kube::runtime::watcher::{self, Event, watcher};
use kube::{Api, Client, Resource};
use serde::Deserialize;
use tracing::{debug, info, warn};

use super::answer::chain;
use super::watch::Sink;
use crate::core::facts::NodeState;
use crate::supervisor::{ClusterKey, OwnedPod};

/// A watch that says nothing for this long is renewed.
const RENEW_SECONDS: u32 = 60;

/// Pause before nodes that may not be read are asked for again.
const ASK_AGAIN: Duration = Duration::from_secs(60);

/// Taints with which nodes are emptied: those of `kubectl cordon`, of the cluster autoscaler and of Karpenter, and the
/// clouds' notices of a node's end. Operators that know others are told by `--drain-taint`.
const EMPTYING: &[&str] = &[
    "node.kubernetes.io/unschedulable",
    "ToBeDeletedByClusterAutoscaler",
    "karpenter.sh/disrupted",
    "karpenter.sh/disruption",
    "cloud.google.com/impending-node-termination",
    "aws-node-termination-handler/spot-itn",
    "aws-node-termination-handler/scheduled-maintenance",
];

/// Somebody has declared that the node is off.
const OUT_OF_SERVICE: &str = "node.kubernetes.io/out-of-service";
/// What Kubernetes makes of a node that is not ready.
const NOT_READY: &[&str] = &["node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"];
/// A wish that pods go elsewhere, no more.
const WISH: &str = "PreferNoSchedule";
/// So a kubelet ends the message of its Ready condition when its machine shuts down in order.
const SHUTTING_DOWN: &str = "node is shutting down";

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

/// Watches all nodes. `taints`: more of the kind with which nodes are emptied. Where nodes may not be read, all count as
/// fit; it ends only when that is so and they are not `needed`: an operator for one namespace often has no right to.
pub async fn watch<S: Sink + ?Sized>(
    client: Client,
    needed: bool,
    placed: Arc<Placed<S>>,
    taints: Vec<String>,
) {
    let mut told = false;
    loop {
        let config = watcher::Config::default().timeout(RENEW_SECONDS);
        let events = watcher(Api::<SlimNode>::all(client.clone()), config).default_backoff();
        let Err(error) = follow(events, &placed, &taints).await else { return };
        if !needed {
            info!("nodes may not be read: no master is moved before its node is drained");
            return;
        }
        if !std::mem::replace(&mut told, true) {
            warn!(
                error = chain(&error),
                "nodes may not be read, so no master is moved before its node is drained, and the end of a node is no \
                 evidence; let the operator's role list and watch nodes"
            );
        }
        tokio::time::sleep(ASK_AGAIN).await;
    }
}

/// Ends when nodes may not be read.
async fn follow<S: Sink + ?Sized>(
    events: impl Stream<Item = watcher::Result<Event<SlimNode>>>,
    placed: &Placed<S>,
    taints: &[String],
) -> Result<(), watcher::Error> {
    let (mut nodes, mut list) = (States::new(), States::new());
    pin_mut!(events);
    while let Some(event) = events.next().await {
        match event {
            Ok(Event::Apply(node)) => nodes.extend(node.entry(taints)),
            Ok(Event::Delete(node)) => {
                nodes.remove(&node.metadata.name.unwrap_or_default());
            }
            Ok(Event::Init) => {
                list.clear();
                continue;
            }
            Ok(Event::InitApply(node)) => {
                list.extend(node.entry(taints));
                continue;
            }
            Ok(Event::InitDone) => nodes = std::mem::take(&mut list),
            Err(error) if is_forbidden(&error) => return Err(error),
            Err(error) => {
                // The watcher goes on by itself, after a pause that grows.
                debug!(error = chain(&error), "the watch of nodes broke and is taken up again");
                continue;
            }
        }
        placed.nodes(&nodes);
    }
    Ok(())
}

fn is_forbidden(error: &watcher::Error) -> bool {
    let (watcher::Error::InitialListFailed(kube::Error::Api(status))
    | watcher::Error::WatchStartFailed(kube::Error::Api(status))
    | watcher::Error::WatchError(status)) = error
    else {
        return false;
    };
    status.code == 403
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
    #[serde(default)]
    effect: String,
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
    #[serde(default)]
    message: String,
}

impl SlimNode {
    fn entry(self, taints: &[String]) -> Option<(String, NodeState)> {
        let state = self.state(taints);
        Some((self.metadata.name?, state))
    }

    /// A node that is not ready is lost, whatever else is done to it.
    fn state(&self, taints: &[String]) -> NodeState {
        let tainted = |key: &str| self.spec.taints.iter().any(|taint| taint.key == key);
        let ready = self.status.conditions.iter().find(|condition| condition.kind == "Ready");
        let ready = ready.filter(|condition| condition.status != "True");
        // Its kubelet is there to say so, and tells its pods to end.
        let shutting_down =
            ready.is_some_and(|it| it.status == "False" && it.message.ends_with(SHUTTING_DOWN));
        let not_ready = ready.is_some() || NOT_READY.iter().any(|key| tainted(key));
        if tainted(OUT_OF_SERVICE) || (not_ready && !shutting_down) {
            NodeState::Lost
        } else if shutting_down || self.spec.unschedulable || self.is_emptied(taints) {
            NodeState::Leaving
        } else {
            NodeState::Fit
        }
    }

    fn is_emptied(&self, taints: &[String]) -> bool {
        self.spec
            .taints
            .iter()
            .filter(|taint| taint.effect != WISH)
            .any(|taint| EMPTYING.contains(&taint.key.as_str()) || taints.contains(&taint.key))
    }
}

#[cfg(test)]
mod tests {
    use futures::stream;
    use serde_json::{Value, json};

    use super::*;
    use crate::core::facts::PodFact;
    use crate::supervisor::{WatchedReads, WatchedRoute};

    fn node(name: &str, spec: &Value, ready: &str) -> SlimNode {
        serde_json::from_value(json!({"metadata": {"name": name}, "spec": spec,
            "status": {"conditions": [{"type": "MemoryPressure", "status": "False"},
                {"type": "Ready", "status": ready}]}}))
        .unwrap()
    }

    fn known() -> [String; 1] {
        ["example.com/maintenance".to_owned()]
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
            (taint("example.com/maintenance"), "True", NodeState::Leaving),
            (
                json!({"taints": [{"key": "karpenter.sh/disrupted", "effect": "PreferNoSchedule"}]}),
                "True",
                NodeState::Fit,
            ),
            (json!({"unschedulable": true}), "Unknown", NodeState::Lost),
            (json!({}), "False", NodeState::Lost),
            (taint("node.kubernetes.io/out-of-service"), "True", NodeState::Lost),
            (taint("node.kubernetes.io/unreachable"), "True", NodeState::Lost),
        ] {
            assert_eq!(node("a", &spec, ready).state(&known()), expected, "{spec} {ready}");
        }
        let young: SlimNode = serde_json::from_value(json!({"metadata": {"name": "a"}})).unwrap();
        assert_eq!(young.state(&[]), NodeState::Fit, "it has said nothing yet");
    }

    #[test]
    fn a_machine_that_shuts_down_in_order_is_being_emptied_until_it_is_off() {
        let state = |ready: &str, taints: &[&str]| {
            let taints: Vec<Value> =
                taints.iter().map(|key| json!({"key": key, "effect": "NoExecute"})).collect();
            let node: SlimNode = serde_json::from_value(json!({"metadata": {"name": "a"},
                "spec": {"unschedulable": false, "taints": taints},
                "status": {"conditions": [{"type": "Ready", "status": ready, "reason": "KubeletNotReady",
                    "message": "node is shutting down"}]}}))
            .unwrap();
            node.state(&[])
        };
        assert_eq!(state("False", &["node.kubernetes.io/not-ready"]), NodeState::Leaving);
        assert_eq!(state("Unknown", &["node.kubernetes.io/unreachable"]), NodeState::Lost);
        assert_eq!(state("False", &["node.kubernetes.io/out-of-service"]), NodeState::Lost);
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
        let fit = |name: &str| node(name, &json!({}), "True");
        let events = stream::iter([
            Ok(Event::Init),
            Ok(Event::InitApply(fit("a"))),
            Ok(Event::InitApply(fit("b"))),
            Ok(Event::InitDone),
            Ok(Event::Apply(fit("a"))),
            Ok(Event::Apply(node("a", &json!({"unschedulable": true}), "True"))),
            Err(watcher::Error::NoResourceVersion),
            Ok(Event::Delete(fit("b"))),
        ]);
        assert!(follow(events, &placed, &[]).await.is_ok());
        assert_eq!(
            *placed.sink.0.lock().unwrap(),
            ["cache: Fit Fit", "other: Fit", "cache: Leaving Fit", "cache: Leaving Lost", "other: Lost"]
        );
    }

    #[tokio::test]
    async fn where_nodes_may_not_be_read_all_are_fit_and_the_watch_says_so() {
        let placed = Placed::new(Arc::new(Heard::default()));
        let key = ClusterKey { namespace: "shop".into(), name: "cache".into() };
        placed.pods(&key, vec![pod(0, "a")]);
        let refused = kube::core::Status { code: 403, ..kube::core::Status::default() };
        let refused = kube::Error::Api(Box::new(refused));
        let events = stream::iter([
            Ok(Event::Init),
            Err(watcher::Error::InitialListFailed(refused)),
            Ok(Event::Apply(node("a", &json!({"unschedulable": true}), "True"))),
        ]);
        assert!(follow(events, &placed, &[]).await.is_err());
        assert_eq!(*placed.sink.0.lock().unwrap(), ["cache: Fit"]);
    }
}
