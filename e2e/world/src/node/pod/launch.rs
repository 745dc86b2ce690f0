//! The start of a container: all that it needs, written down, and its process.

use std::collections::BTreeMap;
use std::path::PathBuf;

use anyhow::{Context, Result};
use k8s_openapi::api::core::v1::Container as Spec;
use tokio::time::Instant;

use super::{PodTask, RETRY, spec};
use crate::node::container::{Run, State};
use crate::node::environment::{Facts, expand, variables};
use crate::node::plan::{Mount, Plan};
use crate::node::{images, volumes};
use crate::paths;

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

impl PodTask {
    /// Starts a container; if that fails, says when to try again.
    pub(super) async fn start(&mut self, index: usize) -> Option<Instant> {
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
            .with_context(|| format!("no server build is known for image {image:?}; those of e2e/servers are given with --image"))
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
            read_only_root: container
                .security_context
                .is_some_and(|context| context.read_only_root_filesystem == Some(true)),
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
}
