//! One pod from its first sight to its end: a task that owns everything of the
//! pod and is told by mail what happens to it.

mod launch;
mod news;

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
use super::container::Container;
use super::environment::Facts;
use super::objects::Objects;
use super::probe::Kind;
use super::report::Reporter;
use super::sandbox::Sandbox;
use super::status::{History, View, policy};
use super::volumes;
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
        let mut containers: Vec<_> = init.chain(main).collect();
        // After a crash of the node its pods are still there, without processes.
        for status in pod.status.iter().flat_map(|status| status.container_statuses.iter().flatten()) {
            if let Some(container) = containers.iter_mut().find(|it| it.name == status.name) {
                container.crashed(status);
            }
        }
        Self {
            containers,
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

    fn spec_of(&self, name: &str) -> Option<Spec> {
        let spec = spec(&self.pod);
        let mut all = spec.init_containers.iter().flatten().chain(&spec.containers);
        all.find(|container| container.name == name).cloned()
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

/// A pod from the API server always has a spec.
fn spec(pod: &Pod) -> &PodSpec {
    static NONE: std::sync::LazyLock<PodSpec> = std::sync::LazyLock::new(PodSpec::default);
    pod.spec.as_ref().unwrap_or(&NONE)
}
