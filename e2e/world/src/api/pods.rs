//! Pods as a test sees and harms them.

use std::time::Duration;

use anyhow::{Context, Result, bail};
use k8s_openapi::api::core::v1::Pod;
use kube::api::DeleteParams;
use kube::{Api, ResourceExt};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use super::{World, wait_for};
use crate::{paths, program};

/// One incarnation of a pod: a successor of the same name has another uid.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PodHandle {
    pub namespace: String,
    pub name: String,
    pub uid: String,
    pub ip: String,
    pub node: String,
    /// The names of its containers; the first is meant where none is named.
    pub containers: Vec<String>,
}

impl World {
    /// The pod of that name, once it has an address.
    pub async fn pod(&self, namespace: &str, name: &str) -> Result<PodHandle> {
        let pod = Api::<Pod>::namespaced(self.client(), namespace).get(name).await;
        PodHandle::of(&pod.with_context(|| format!("get pod {namespace}/{name}"))?)
    }

    /// Waits until the pod of that name is Ready and not on its way out.
    pub async fn ready_pod(&self, namespace: &str, name: &str, limit: Duration) -> Result<PodHandle> {
        let pods = Api::<Pod>::namespaced(self.client(), namespace);
        wait_for(&format!("pod {namespace}/{name} to be Ready"), limit, async || {
            let pod = pods.get_opt(name).await?;
            pod.filter(is_ready).map(|pod| PodHandle::of(&pod)).transpose()
        })
        .await
    }

    /// Asks for a pod's deletion; no grace period means the pod's own.
    pub async fn delete_pod(&self, namespace: &str, name: &str, grace: Option<Duration>) -> Result<()> {
        let grace_period_seconds = grace.map(|grace| grace.as_secs().try_into()).transpose()?;
        let params = DeleteParams { grace_period_seconds, ..DeleteParams::default() };
        let deleted = Api::<Pod>::namespaced(self.client(), namespace).delete(name, &params).await;
        deleted.map(drop).with_context(|| format!("delete pod {namespace}/{name}"))
    }

    /// Sets how long the containers of that pod, and of later pods of that name,
    /// wait between their end and their restart. Nothing restores a kubelet's
    /// back-off. It holds at once, also for one that waits already.
    pub fn set_restart_delay(&self, namespace: &str, pod: &str, delay: Option<Duration>) -> Result<()> {
        let file = paths::restart_delay(namespace, pod);
        let done = match delay {
            Some(delay) => {
                let unfinished = paths::state("restart-delay").join(format!(".{namespace}_{pod}"));
                std::fs::write(&unfinished, delay.as_millis().to_string())
                    .and_then(|()| std::fs::rename(&unfinished, &file))
            }
            None => match std::fs::remove_file(&file) {
                Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(error),
                _ => Ok(()),
            },
        };
        done.with_context(|| format!("set the restart delay of {namespace}/{pod}"))
    }
}

/// Whether a pod takes traffic.
pub fn is_ready(pod: &Pod) -> bool {
    let conditions = pod.status.as_ref().and_then(|status| status.conditions.as_ref());
    pod.metadata.deletion_timestamp.is_none()
        && conditions.into_iter().flatten().any(|it| it.type_ == "Ready" && it.status == "True")
}

impl PodHandle {
    /// The handle of a pod that has an address.
    pub fn of(pod: &Pod) -> Result<Self> {
        let (namespace, name) = (pod.namespace().unwrap_or_default(), pod.name_any());
        let ip = pod.status.as_ref().and_then(|status| status.pod_ip.clone());
        let spec = pod.spec.as_ref().context("a pod has no spec")?;
        Ok(Self {
            ip: ip.with_context(|| format!("pod {namespace}/{name} has no address yet"))?,
            uid: pod.uid().context("a pod has no uid")?,
            node: spec.node_name.clone().unwrap_or_default(),
            containers: spec.containers.iter().map(|container| container.name.clone()).collect(),
            namespace,
            name,
        })
    }

    fn first(&self) -> Result<&str> {
        self.containers.first().map(String::as_str).context("a pod has no container")
    }

    /// The number of the first container's main process, in the world's count.
    pub fn pid(&self) -> Result<i32> {
        self.pid_of(self.first()?)
    }

    pub fn pid_of(&self, container: &str) -> Result<i32> {
        let file = paths::container_pid(&self.uid, container);
        let text = std::fs::read_to_string(file);
        let text =
            text.with_context(|| format!("{container} of {}/{} does not run", self.namespace, self.name))?;
        text.trim().parse().context("read a process number")
    }

    /// Sends a signal to the first container's main process.
    pub fn kill(&self, signal: Signal) -> Result<()> {
        self.kill_container(self.first()?, signal)
    }

    pub fn kill_container(&self, container: &str, signal: Signal) -> Result<()> {
        kill(Pid::from_raw(self.pid_of(container)?), signal)
            .with_context(|| format!("send {signal} to {container} of {}/{}", self.namespace, self.name))
    }

    /// All that the first container has printed, in all its runs.
    pub fn log(&self) -> Result<String> {
        self.log_of(self.first()?)
    }

    pub fn log_of(&self, container: &str) -> Result<String> {
        let file = paths::container_log(&self.namespace, &self.name, &self.uid, container);
        let bytes = std::fs::read(&file).with_context(|| format!("read {}", file.display()))?;
        Ok(String::from_utf8_lossy(&bytes).into_owned())
    }

    /// Runs a command in the first container and returns what it printed.
    pub async fn exec(&self, command: &[&str]) -> Result<String> {
        let container = self.first()?;
        let (pid, plan) = (self.pid_of(container)?.to_string(), paths::container_plan(&self.uid, container));
        let world = paths::state("bin/world");
        let (Some(world), Some(plan)) = (world.to_str(), plan.to_str()) else { bail!("a path is not UTF-8") };
        let args: Vec<_> = ["__exec", &pid, plan, "--"].into_iter().chain(command.iter().copied()).collect();
        program::run(world, &args, "").await
    }
}
