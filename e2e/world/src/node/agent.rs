//! The pod runner of one node: registers it, watches the pods bound to it and
//! gives each of them a task.

use std::collections::{BTreeMap, BTreeSet};
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result};
use futures::TryStreamExt;
use k8s_openapi::api::core::v1::Pod;
use kube::runtime::watcher::{self, Event, watcher};
use kube::{Api, Client, ResourceExt};
use tokio::sync::{mpsc, watch};
use tokio::time::sleep;

use super::address_pool::AddressPool;
use super::claims;
use super::kubelet_server;
use super::pod::{Mailbox, Message, NodeContext, PodTask};
use super::register::{beat, register};
use super::report::{remove, settled};
use crate::addresses::NodeNumber;
use crate::api::connect;
use crate::paths;

const RETRY: Duration = Duration::from_millis(300);

pub async fn run(name: &str) -> Result<()> {
    let node = NodeNumber::parse(name).with_context(|| format!("{name} is no node's name"))?;
    let client = connect(&paths::pki("node-agent.kubeconfig")).await?;
    tokio::spawn(async {
        if let Err(error) = kubelet_server::serve().await {
            eprintln!("no logs: {error:#}");
        }
    });
    register(&client, node).await;
    let (recovering, mut recovered) = watch::channel(0);
    tokio::spawn(beat(client.clone(), node, recovering));
    let (finished, mut endings) = mpsc::unbounded_channel();
    let context = Arc::new(NodeContext { node, client: client.clone(), pool: AddressPool::default() });
    let mut pods = Pods { context, tasks: BTreeMap::new(), finished };
    loop {
        tokio::select! {
            () = follow(&mut pods, &mut endings) => {}
            () = claims::follow(&client, node) => {}
            // After a partition the old connection may be silent for minutes.
            _ = recovered.changed() => {}
        }
        sleep(RETRY).await;
    }
}

/// Watches until the watch breaks.
async fn follow(pods: &mut Pods, endings: &mut mpsc::UnboundedReceiver<String>) {
    let field = format!("spec.nodeName={}", pods.context.node.name());
    let api = Api::<Pod>::all(pods.client());
    let mut events = pin!(watcher(api, watcher::Config::default().fields(&field)));
    let mut listed = BTreeSet::new();
    loop {
        tokio::select! {
            event = events.try_next() => match event {
                Ok(Some(event)) => pods.note(event, &mut listed),
                Ok(None) => return,
                Err(error) => {
                    eprintln!("watch: {error}");
                    return;
                }
            },
            Some(uid) = endings.recv() => {
                pods.tasks.remove(&uid);
            }
        }
    }
}

struct Pods {
    context: Arc<NodeContext>,
    tasks: BTreeMap<String, Mailbox>,
    finished: mpsc::UnboundedSender<String>,
}

impl Pods {
    fn client(&self) -> Client {
        self.context.client.clone()
    }

    fn note(&mut self, event: Event<Pod>, listed: &mut BTreeSet<String>) {
        match event {
            Event::Init => listed.clear(),
            Event::InitApply(pod) => {
                listed.extend(pod.uid());
                self.applied(pod);
            }
            // What was force-deleted while nobody watched.
            Event::InitDone => {
                for (_, task) in self.tasks.iter().filter(|(uid, _)| !listed.contains(*uid)) {
                    task.tell(Message::Gone);
                }
            }
            Event::Apply(pod) => self.applied(pod),
            Event::Delete(pod) => {
                if let Some(task) = pod.uid().and_then(|uid| self.tasks.get(&uid)) {
                    task.tell(Message::Gone);
                }
            }
        }
    }

    fn applied(&mut self, pod: Pod) {
        let Some(uid) = pod.uid() else { return };
        if let Some(task) = self.tasks.get(&uid) {
            task.tell(Message::Changed(Arc::new(pod)));
            return;
        }
        let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref());
        let over = matches!(phase, Some("Succeeded" | "Failed"));
        if pod.metadata.deletion_timestamp.is_some() {
            self.take_away(&pod, uid);
        } else if !over {
            self.begin(pod, uid);
        }
    }

    fn begin(&mut self, pod: Pod, uid: String) {
        let (sender, inbox) = mpsc::unbounded_channel();
        let mailbox = Mailbox(sender);
        self.tasks.insert(uid.clone(), mailbox.clone());
        let task = PodTask::new(self.context.clone(), Arc::new(pod), mailbox, inbox);
        let finished = self.finished.clone();
        tokio::spawn(async move {
            task.run().await;
            // The receiver lives as long as the process.
            let _ = finished.send(uid);
        });
    }

    /// A pod to be deleted of which nothing runs here.
    fn take_away(&self, pod: &Pod, uid: String) {
        let api = Api::<Pod>::namespaced(self.client(), &pod.namespace().unwrap_or_default());
        let name = pod.name_any();
        tokio::spawn(async move {
            while !settled(remove(&api, &name, &uid).await) {
                sleep(RETRY).await;
            }
        });
    }
}
