//! A pod's status as the pod runner tells it to the API server.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{Pod, PodSpec};
use k8s_openapi::jiff::Timestamp;
use serde_json::{Value, json};

use super::container::{Container, State, Terminated};

/// The parts of a status that depend on earlier ones.
#[derive(Default)]
pub struct History {
    began: Option<Timestamp>,
    /// Each condition's last value and when it came.
    conditions: BTreeMap<&'static str, (bool, Timestamp)>,
}

/// What a status is made of.
pub struct View<'a> {
    pub pod: &'a Pod,
    pub spec: &'a PodSpec,
    pub node_address: &'a str,
    pub address: Option<&'a str>,
    pub containers: &'a [Container],
    /// Why the containers cannot be made yet, such as a missing volume.
    pub obstacle: Option<&'a str>,
}

impl View<'_> {
    pub fn phase(&self) -> &'static str {
        let policy = policy(self.spec);
        let main: Vec<_> = self.containers.iter().filter(|container| !container.init).collect();
        let init_failed = self.containers.iter().filter(|container| container.init).any(|container| {
            matches!(&container.state, State::Terminated(ended) if ended.code != 0)
                && !container.restarts_under(policy)
        });
        if init_failed {
            return "Failed";
        }
        let over = |container: &&Container| {
            matches!(container.state, State::Terminated(_)) && !container.restarts_under(policy)
        };
        if !main.is_empty() && main.iter().all(over) {
            let well = main.iter().all(|container| container.is_completed());
            return if well { "Succeeded" } else { "Failed" };
        }
        let ran = |container: &&Container| !container.id.is_empty();
        if main.iter().any(ran) { "Running" } else { "Pending" }
    }

    /// The status; conditions keep their times in `history`.
    pub fn status(&self, history: &mut History) -> Value {
        let phase = self.phase();
        let over = matches!(phase, "Succeeded" | "Failed");
        let main = || self.containers.iter().filter(|container| !container.init);
        let initialized =
            self.containers.iter().filter(|container| container.init).all(Container::is_completed);
        let containers_ready = initialized && main().all(|container| container.ready) && !over;
        let began = *history.began.get_or_insert_with(Timestamp::now);
        let not_ready = if over { "PodCompleted" } else { "ContainersNotReady" };
        let mut condition = |kind: &'static str, holds: bool, reason: &str| {
            let entry = history.conditions.entry(kind).or_insert_with(|| (holds, Timestamp::now()));
            if entry.0 != holds {
                *entry = (holds, Timestamp::now());
            }
            // Nulls, or a merge would keep an earlier reason.
            json!({
                "type": kind,
                "status": if holds { "True" } else { "False" },
                "lastTransitionTime": time(entry.1),
                "reason": (!holds).then_some(reason),
                "message": if holds { None } else { self.obstacle },
            })
        };
        json!({
            "phase": phase,
            "startTime": time(began),
            "hostIP": self.node_address,
            "hostIPs": [{"ip": self.node_address}],
            "podIP": self.address,
            // Replaced as a whole: a merge would keep the address of before a crash.
            "podIPs": self.address.map(|ip| json!([{"ip": ip}, {"$patch": "replace"}])),
            "conditions": [
                condition("PodReadyToStartContainers", self.address.is_some(), "SandboxNotReady"),
                condition("Initialized", initialized, "ContainersNotInitialized"),
                condition("ContainersReady", containers_ready, not_ready),
                condition("Ready", containers_ready && self.gates_open(), not_ready),
                condition("PodScheduled", true, ""),
            ],
            "initContainerStatuses": self.statuses(true),
            "containerStatuses": self.statuses(false),
        })
    }

    fn gates_open(&self) -> bool {
        let conditions = self.pod.status.as_ref().and_then(|status| status.conditions.as_ref());
        self.spec.readiness_gates.iter().flatten().all(|gate| {
            conditions.into_iter().flatten().any(|it| it.type_ == gate.condition_type && it.status == "True")
        })
    }

    fn statuses(&self, init: bool) -> Vec<Value> {
        let specs = if init { self.spec.init_containers.as_ref() } else { Some(&self.spec.containers) };
        let chosen = self.containers.iter().filter(|container| container.init == init);
        chosen
            .map(|container| {
                let spec = specs.into_iter().flatten().find(|spec| spec.name == container.name);
                let image = spec.and_then(|spec| spec.image.clone()).unwrap_or_default();
                let running = matches!(container.state, State::Running { .. });
                let ready = if init { container.is_completed() } else { container.ready && running };
                json!({
                    "name": container.name,
                    "image": image,
                    "imageID": image,
                    "containerID": container.id,
                    "restartCount": container.restarts,
                    "ready": ready,
                    "started": container.started && running,
                    "state": state(&container.state),
                    "lastState": container.last.as_ref().map_or(json!({}), terminated),
                })
            })
            .collect()
    }
}

fn state(state: &State) -> Value {
    match state {
        State::Waiting { reason, message } => {
            json!({"waiting": {"reason": reason, "message": (!message.is_empty()).then_some(message)}})
        }
        State::Running { since } => json!({"running": {"startedAt": time(*since)}}),
        State::Terminated(ended) => terminated(ended),
    }
}

fn terminated(ended: &Terminated) -> Value {
    json!({"terminated": {
        "exitCode": ended.code,
        "signal": (ended.signal != 0).then_some(ended.signal),
        "reason": if ended.code == 0 { "Completed" } else { "Error" },
        "startedAt": time(ended.started),
        "finishedAt": time(ended.finished),
        "containerID": ended.id,
    }})
}

/// The API's times have whole seconds.
fn time(time: Timestamp) -> String {
    time.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}

/// The pod's restart policy.
pub fn policy(spec: &PodSpec) -> &str {
    spec.restart_policy.as_deref().unwrap_or("Always")
}
