//! One pod from its first sight to its end: a task that owns everything of the
//! pod and is told by mail what happens to it.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result};
use k8s_openapi::api::core::v1::{Container as Spec, Pod, PodSpec};
use kube::{Client, ResourceExt};
use tokio::sync::mpsc;
use tokio::time::{Instant, timeout_at};

use super::address_pool::AddressPool;
use super::container::{Container, Run, State};
use super::environment::{Facts, expand, variables};
use super::objects::Objects;
use super::plan::{Mount, Plan};
use super::probe::{Kind, Prober};
use super::report::Reporter;
use super::sandbox::Sandbox;
use super::status::{History, View, policy};
use super::stop::stop;
use super::{images, volumes};
use crate::addresses::NodeNumber;
use crate::paths;

/// How soon something that failed is tried again, and how often a waiting
/// container looks for a test's order.
const RETRY: Duration = Duration::from_millis(300);
const LOOK_FOR_ORDER: Duration = Duration::from_millis(100);
const DEFAULT_GRACE: i64 = 30;

/// What can happen to a pod.
#[derive(Debug)]
pub enum Message {
    /// The API server has a newer version.
    Changed(Arc<Pod>),
    /// The API server does not have it any more.
    Gone,
    Started {
        container: String,
        attempt: u32,
    },
    Ended {
        container: String,
        attempt: u32,
        code: i32,
        signal: i32,
    },
    Probed {
        container: String,
        attempt: u32,
        kind: Kind,
        passed: bool,
    },
}

/// Where messages for one pod go.
#[derive(Clone, Debug)]
pub struct Mailbox(pub mpsc::UnboundedSender<Message>);

impl Mailbox {
    pub fn tell(&self, message: Message) {
        // A pod that has ended reads nothing any more.
        let _ = self.0.send(message);
    }
}

/// What the pods of a node share.
pub struct NodeContext {
    pub node: NodeNumber,
    pub client: Client,
    pub pool: AddressPool,
}

pub struct PodTask {
    context: Arc<NodeContext>,
    pod: Arc<Pod>,
    uid: String,
    namespace: String,
    name: String,
    inbox: mpsc::UnboundedReceiver<Message>,
    mailbox: Mailbox,
    objects: Objects,
    sandbox: Option<Sandbox>,
    volumes: BTreeMap<String, PathBuf>,
    containers: Vec<Container>,
    obstacle: Option<String>,
    history: History,
    reporter: Reporter,
    /// Set once the pod is to end.
    ending: Option<Ending>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Ending {
    Deleted,
    /// Nobody waits for a last status.
    Gone,
}

impl PodTask {
    pub fn new(
        context: Arc<NodeContext>,
        pod: Arc<Pod>,
        mailbox: Mailbox,
        inbox: mpsc::UnboundedReceiver<Message>,
    ) -> Self {
        let (uid, namespace) = (pod.uid().unwrap_or_default(), pod.namespace().unwrap_or_default());
        let spec = spec(&pod);
        let init = spec.init_containers.iter().flatten().map(|spec| Container::new(&spec.name, true));
        let main = spec.containers.iter().map(|spec| Container::new(&spec.name, false));
        Self {
            containers: init.chain(main).collect(),
            objects: Objects::new(context.client.clone(), namespace.clone()),
            reporter: Reporter::new(context.client.clone(), &namespace, &pod.name_any(), &uid),
            name: pod.name_any(),
            sandbox: None,
            volumes: BTreeMap::new(),
            obstacle: None,
            history: History::default(),
            ending: None,
            context,
            pod,
            uid,
            namespace,
            inbox,
            mailbox,
        }
    }

    /// Runs the pod until it is gone.
    pub async fn run(mut self) {
        loop {
            let next = if self.ending.is_none() { self.advance().await } else { None };
            if self.ending.is_some() && !self.containers.iter().any(Container::is_running) {
                return self.end().await;
            }
            self.report();
            let message = match next {
                Some(next) => timeout_at(next, self.inbox.recv()).await.unwrap_or_default(),
                None => self.inbox.recv().await,
            };
            if let Some(message) = message {
                self.note(message);
            }
        }
    }

    /// Does what can be done now; returns when to look again without any news.
    async fn advance(&mut self) -> Option<Instant> {
        if self.is_over() {
            if let Some(sandbox) = self.sandbox.take() {
                sandbox.end().await;
            }
            return None;
        }
        match self.prepare().await {
            Ok(()) => self.obstacle = None,
            Err(error) => {
                self.obstacle = Some(format!("{error:#}"));
                return Some(Instant::now() + RETRY);
            }
        }
        let now = Instant::now();
        let mut next: Option<Instant> = None;
        for index in self.startable() {
            let Some(container) = self.containers.get(index) else { continue };
            let due = container.due(&self.namespace, &self.name);
            let again =
                if due <= now { self.start(index).await } else { Some(due.min(now + LOOK_FOR_ORDER)) };
            next = [next, again].into_iter().flatten().min();
        }
        next
    }

    fn is_over(&self) -> bool {
        matches!(self.view().phase(), "Succeeded" | "Failed")
    }

    /// The sandbox and the volumes.
    async fn prepare(&mut self) -> Result<()> {
        let pod = self.pod.clone();
        let spec = spec(&pod);
        if self.sandbox.is_none() {
            for directory in [paths::pod(&self.uid), paths::pod_logs(&self.namespace, &self.name, &self.uid)]
            {
                std::fs::create_dir_all(&directory)
                    .with_context(|| format!("create {}", directory.display()))?;
            }
            let hostname = spec.hostname.as_deref().unwrap_or(&self.name);
            self.sandbox = Some(Sandbox::make(hostname, self.context.node, &self.context.pool).await?);
            self.report();
        }
        let node_address = self.context.node.address();
        let address = self.sandbox.as_ref().map(|sandbox| sandbox.address.clone()).unwrap_or_default();
        let facts = Facts { pod: &self.pod, address: &address, node_address: &node_address };
        for volume in spec.volumes.iter().flatten() {
            if !self.volumes.contains_key(&volume.name) {
                let directory = self.volume_directory().join(&volume.name);
                let made =
                    volumes::make(volume, directory, &facts, &self.context.client, &mut self.objects).await;
                let place = made.with_context(|| format!("make volume {}", volume.name))?;
                self.volumes.insert(volume.name.clone(), place);
            }
        }
        Ok(())
    }

    fn volume_directory(&self) -> PathBuf {
        paths::pod(&self.uid).join("volumes")
    }

    /// Containers that should run now: the first init container that is not
    /// done, or after all of them every main container.
    fn startable(&self) -> Vec<usize> {
        let policy = policy(spec(&self.pod));
        let mut indices = Vec::new();
        for (index, container) in self.containers.iter().enumerate() {
            let wanted = !container.is_running() && container.restarts_under(policy);
            if container.init && !container.is_completed() {
                return if wanted { vec![index] } else { vec![] };
            }
            if !container.init && wanted {
                indices.push(index);
            }
        }
        indices
    }

    /// Starts a container; if that fails, says when to try again.
    async fn start(&mut self, index: usize) -> Option<Instant> {
        let (name, attempt) = {
            let container = self.containers.get_mut(index)?;
            container.attempts += 1;
            (container.name.clone(), container.attempts)
        };
        let outcome = match self.plan(&name, attempt).await {
            Ok(plan) => Run::start(plan, &name, attempt, self.mailbox.clone())
                .map_err(|error| Refused { reason: "RunContainerError", error }),
            Err(refused) => Err(refused),
        };
        let container = self.containers.get_mut(index)?;
        match outcome {
            Ok(run) => {
                (container.run, container.retry_at) = (Some(run), None);
                None
            }
            Err(Refused { reason, error }) => {
                // As a kubelet: the first word is the error, later it backs off.
                let pulled = reason == "ErrImagePull" && attempt > 1;
                let reason = if pulled { "ImagePullBackOff" } else { reason };
                container.state = State::Waiting { reason, message: format!("{error:#}") };
                let again = Instant::now() + if attempt > 1 { RETRY * 3 } else { RETRY };
                container.retry_at = Some(again);
                Some(again)
            }
        }
    }

    /// Writes down all that the container's start needs.
    async fn plan(&mut self, name: &str, attempt: u32) -> Result<PathBuf, Refused> {
        let container =
            self.spec_of(name).context("the pod has no such container").map_err(Refused::config)?;
        let image = container.image.clone().unwrap_or_default();
        let image = images::find(&image)
            .with_context(|| format!("no server build is known for image {image:?}"))
            .map_err(|error| Refused { reason: "ErrImagePull", error })?;
        let sandbox = self.sandbox.as_ref().context("there is no sandbox").map_err(Refused::config)?;
        let (pid, address) = (sandbox.pid, sandbox.address.clone());
        let node_address = self.context.node.address();
        let facts = Facts { pod: &self.pod, address: &address, node_address: &node_address };
        let env = variables(&container, &facts, &mut self.objects).await.map_err(Refused::config)?;
        let known: BTreeMap<_, _> = env.iter().cloned().collect();
        let expanded = |words: Option<Vec<String>>| {
            words.into_iter().flatten().map(|word| expand(&word, &known)).collect()
        };
        let argv = image.command_line(expanded(container.command.clone()), expanded(container.args.clone()));
        let hostname = spec(&self.pod).hostname.clone().unwrap_or_else(|| self.name.clone());
        let own = paths::pod(&self.uid).join(name);
        let plan = Plan {
            sandbox: pid,
            directory: own.join(format!("root-{attempt}")),
            log: paths::container_log(&self.namespace, &self.name, &self.uid, name),
            pid_file: paths::container_pid(&self.uid, name),
            argv,
            env,
            working_directory: container.working_dir.clone().unwrap_or_else(|| "/".into()).into(),
            hosts: format!("127.0.0.1 localhost\n{address} {hostname}\n"),
            hostname,
            build: image.build,
            mounts: self.mounts(&container).map_err(Refused::config)?,
        };
        let file = paths::container_plan(&self.uid, name);
        std::fs::create_dir_all(&plan.directory)
            .with_context(|| format!("create {}", plan.directory.display()))
            .and_then(|()| plan.write(&file))
            .map_err(Refused::config)?;
        Ok(file)
    }

    fn mounts(&self, container: &Spec) -> Result<Vec<Mount>> {
        let mounts = container.volume_mounts.iter().flatten();
        mounts
            .map(|mount| {
                let volume = self.volumes.get(&mount.name);
                let volume = volume.with_context(|| format!("the pod has no volume {}", mount.name))?;
                let source = match mount.sub_path.as_deref() {
                    None | Some("") => volume.clone(),
                    Some(part) => volumes::inside(volume, part)?,
                };
                if !source.exists() {
                    std::fs::create_dir_all(&source)
                        .with_context(|| format!("create {}", source.display()))?;
                }
                let read_only = mount.read_only == Some(true);
                Ok(Mount { source, target: mount.mount_path.clone().into(), read_only })
            })
            .collect()
    }

    fn spec_of(&self, name: &str) -> Option<Spec> {
        let spec = spec(&self.pod);
        let mut all = spec.init_containers.iter().flatten().chain(&spec.containers);
        all.find(|container| container.name == name).cloned()
    }

    fn note(&mut self, message: Message) {
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

    fn view(&self) -> View<'_> {
        View {
            pod: &self.pod,
            spec: spec(&self.pod),
            node_address: "",
            address: self.sandbox.as_ref().map(|sandbox| sandbox.address.as_str()),
            containers: &self.containers,
            obstacle: self.obstacle.as_deref(),
        }
    }

    fn report(&mut self) {
        let node_address = self.context.node.address();
        let mut history = std::mem::take(&mut self.history);
        let status = View { node_address: &node_address, ..self.view() }.status(&mut history);
        self.history = history;
        self.reporter.tell(status);
    }

    /// Removes all traces, and the object last: then a successor may come.
    async fn end(mut self) {
        if self.ending == Some(Ending::Deleted) {
            self.report();
        }
        let had_address = self.sandbox.is_some();
        if let Some(sandbox) = self.sandbox.take() {
            sandbox.end().await;
        }
        volumes::unmount(&self.volume_directory());
        let directory = paths::pod(&self.uid);
        if let Err(error) = std::fs::remove_dir_all(&directory)
            && had_address
        {
            eprintln!("{}: remove {}: {error}", self.name, directory.display());
        }
        if self.ending == Some(Ending::Deleted) {
            self.reporter.finish().await;
        }
    }
}

/// Why a container was not made.
struct Refused {
    reason: &'static str,
    error: anyhow::Error,
}

impl Refused {
    fn config(error: anyhow::Error) -> Self {
        Self { reason: "CreateContainerConfigError", error }
    }
}

/// A pod from the API server always has a spec.
fn spec(pod: &Pod) -> &PodSpec {
    static NONE: std::sync::LazyLock<PodSpec> = std::sync::LazyLock::new(PodSpec::default);
    pod.spec.as_ref().unwrap_or(&NONE)
}
