//! What a pod does about what happens to it.

use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::Pod;
use tokio::time::Instant;

use super::{DEFAULT_GRACE, Ending, Message, PodTask, spec};
use crate::node::container::Container;
use crate::node::probe::{Kind, Prober};
use crate::node::status::policy;
use crate::node::stop::stop;
use crate::paths;

impl PodTask {
    pub(super) fn note(&mut self, message: Message) {
        match message {
            Message::Changed(pod) => self.changed(pod),
            Message::Gone => {
                self.ending = Some(Ending::Gone);
                self.stop_all(Duration::ZERO);
            }
            Message::Started { container, attempt } => self.started(&container, attempt),
            Message::Ended { container, attempt, code, signal } => {
                self.ended(&container, attempt, code, signal);
            }
            Message::Probed { container, attempt, kind, passed } => {
                self.probed(&container, attempt, kind, passed);
            }
        }
    }

    fn changed(&mut self, pod: Arc<Pod>) {
        self.pod = pod;
        if self.pod.metadata.deletion_timestamp.is_some() && self.ending.is_none() {
            self.ending = Some(Ending::Deleted);
            let grace = self.pod.metadata.deletion_grace_period_seconds.unwrap_or(DEFAULT_GRACE);
            self.stop_all(Duration::from_secs(u64::try_from(grace).unwrap_or(0)));
        }
        // After a partition the node controller has set Ready to False.
        self.reporter.correct(&self.pod);
    }

    fn stop_all(&self, grace: Duration) {
        for container in &self.containers {
            if let Some(run) = container.run.clone() {
                tokio::spawn(stop(run, self.spec_of(&container.name), grace));
            }
        }
    }

    /// The container whose current run has that number.
    fn current(&mut self, name: &str, attempt: u32) -> Option<&mut Container> {
        let mut all = self.containers.iter_mut();
        all.find(|it| it.name == name && it.run.as_ref().is_some_and(|run| run.attempt == attempt))
    }

    fn started(&mut self, name: &str, attempt: u32) {
        let Some(spec) = self.spec_of(name) else { return };
        let uid = self.uid.clone();
        let Some(container) = self.current(name, attempt) else { return };
        container.has_started(&uid);
        if container.init {
            container.started = true;
        } else if spec.startup_probe.is_some() {
            self.spawn_probers(name, attempt, &[Kind::Startup]);
        } else {
            container.started = true;
            container.ready = spec.readiness_probe.is_none();
            self.spawn_probers(name, attempt, &[Kind::Readiness, Kind::Liveness]);
        }
    }

    fn ended(&mut self, name: &str, attempt: u32, code: i32, signal: i32) {
        let (namespace, pod) = (self.namespace.clone(), self.name.clone());
        let again = self.ending.is_none();
        let policy = policy(spec(&self.pod)).to_owned();
        let Some(container) = self.current(name, attempt) else { return };
        container.has_ended(code, signal);
        let wait = container.due(&namespace, &pod).saturating_duration_since(Instant::now());
        if again && container.restarts_under(&policy) && !wait.is_zero() {
            container.back_off(wait);
        }
        // The root's tmpfs went with its mount namespace; this is its mount point.
        let _ = std::fs::remove_dir_all(paths::pod(&self.uid).join(name).join(format!("root-{attempt}")));
    }

    fn probed(&mut self, name: &str, attempt: u32, kind: Kind, passed: bool) {
        let Some(spec) = self.spec_of(name) else { return };
        let Some(container) = self.current(name, attempt) else { return };
        match (kind, passed) {
            (Kind::Readiness, _) => container.ready = passed,
            (Kind::Startup, true) => {
                container.started = true;
                container.ready = spec.readiness_probe.is_none();
                self.spawn_probers(name, attempt, &[Kind::Readiness, Kind::Liveness]);
            }
            (Kind::Liveness, true) => {}
            (Kind::Startup | Kind::Liveness, false) => {
                let run = container.run.clone();
                let own = if kind == Kind::Startup { &spec.startup_probe } else { &spec.liveness_probe };
                let own = own.as_ref().and_then(|probe| probe.termination_grace_period_seconds);
                let pods = self.pod.spec.as_ref().and_then(|spec| spec.termination_grace_period_seconds);
                let grace = u64::try_from(own.or(pods).unwrap_or(DEFAULT_GRACE)).unwrap_or(0);
                if let Some(run) = run {
                    tokio::spawn(stop(run, Some(spec), Duration::from_secs(grace)));
                }
            }
        }
    }

    fn spawn_probers(&self, name: &str, attempt: u32, kinds: &[Kind]) {
        let (Some(spec), Some(sandbox)) = (self.spec_of(name), &self.sandbox) else { return };
        let container = self.containers.iter().find(|container| container.name == name);
        let Some(run) = container.and_then(|container| container.run.clone()) else { return };
        debug_assert_eq!(run.attempt, attempt);
        for kind in kinds {
            let probe = match kind {
                Kind::Startup => spec.startup_probe.clone(),
                Kind::Readiness => spec.readiness_probe.clone(),
                Kind::Liveness => spec.liveness_probe.clone(),
            };
            if let Some(probe) = probe {
                let (address, mailbox) = (sandbox.address.clone(), self.mailbox.clone());
                Prober { kind: *kind, probe, spec: spec.clone(), address, run: run.clone(), mailbox }.spawn();
            }
        }
    }
}
