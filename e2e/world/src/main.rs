//! The command line of the world, and the door for its re-executions.

use std::collections::BTreeMap;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Command, ExitCode};

use anyhow::{Context, Result};
use clap::{Args, Parser, Subcommand};
use k8s_openapi::api::core::v1::Pod;
use kube::Api;
use world::inside::options::Options;
use world::inside::{outside, pid1, supervisor};
use world::{PodHandle, node, paths};

#[derive(Parser)]
#[command(version, about = "A real Kubernetes control plane with pods as processes, without any way out")]
struct Cli {
    #[command(subcommand)]
    act: Act,
}

#[derive(Subcommand)]
enum Act {
    /// Make a world, run a command in it, end the world, return the command's exit code
    Run {
        #[command(flatten)]
        world: Making,
        #[arg(last = true, required = true)]
        command: Vec<String>,
    },
    /// Make a world and open a shell in it
    Shell {
        #[command(flatten)]
        world: Making,
    },
    #[command(name = "__pid1", hide = true)]
    Pid1 { options: String },
    #[command(name = "__supervisor", hide = true)]
    Supervisor { options: String },
    #[command(name = "__netns", hide = true)]
    Netns {
        node: String,
        #[arg(last = true, required = true)]
        command: Vec<String>,
    },
    #[command(name = "__node", hide = true)]
    Node { name: String },
    #[command(name = "__sandbox", hide = true)]
    Sandbox { hostname: String },
    #[command(name = "__container", hide = true)]
    Container { plan: PathBuf },
    #[command(name = "__container_init", hide = true)]
    ContainerInit { plan: PathBuf },
    /// Run a command in a pod of the world around this one
    Exec {
        /// NAMESPACE/POD
        pod: String,
        #[arg(last = true, required = true)]
        command: Vec<String>,
    },
    #[command(name = "__exec", hide = true)]
    ExecIn {
        pid: i32,
        plan: PathBuf,
        #[arg(last = true, required = true)]
        command: Vec<String>,
    },
}

#[derive(Args)]
struct Making {
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u8).range(1..=200))]
    nodes: u8,
    /// The control plane's binary; by default it is built once and cached
    #[arg(long, env = "KUBEBOX")]
    kubebox: Option<PathBuf>,
    /// A directory of server programs for an image name, e.g. redis:8.0=/opt/redis-8.0
    #[arg(long = "image", value_name = "NAME=DIRECTORY", value_parser = image)]
    images: Vec<(String, PathBuf)>,
    /// Let kube-proxy write its rules at once instead of with its defaults
    #[arg(long)]
    fast_proxy: bool,
    /// Copy all logs to this directory when the command has ended
    #[arg(long, value_name = "DIRECTORY")]
    keep_logs: Option<PathBuf>,
}

fn image(text: &str) -> Result<(String, PathBuf), String> {
    let (name, directory) = text.split_once('=').ok_or("expected NAME=DIRECTORY")?;
    Ok((name.into(), directory.into()))
}

impl Making {
    fn options(self, command: Vec<String>) -> Result<Options> {
        Ok(Options {
            nodes: self.nodes,
            kubebox: outside::kubebox(self.kubebox)?,
            images: self.images.into_iter().collect::<BTreeMap<_, _>>(),
            fast_proxy: self.fast_proxy,
            keep_logs: self
                .keep_logs
                .map(std::path::absolute)
                .transpose()
                .context("find the log directory")?,
            command,
        })
    }
}

fn main() -> ExitCode {
    match act(Cli::parse().act) {
        Ok(code) => ExitCode::from(code),
        Err(error) => {
            eprintln!("world: {error:#}");
            // Apart from what tests return themselves.
            ExitCode::from(125)
        }
    }
}

fn act(act: Act) -> Result<u8> {
    match act {
        Act::Run { world, command } => outside::run(&world.options(command)?),
        Act::Shell { world } => outside::run(&world.options(shell())?),
        Act::Pid1 { options } => pid1::run(&options),
        Act::Supervisor { options } => {
            let options = serde_json::from_str(&options).context("understand the options")?;
            runtime()?.block_on(supervisor::run(options))
        }
        Act::Netns { node, command } => node::enter::run_in(&node, &command),
        Act::Node { name } => {
            node::enter::network(&name)?;
            runtime()?.block_on(node::agent::run(&name)).map(|()| 0)
        }
        Act::Sandbox { hostname } => node::sandbox_process::run(&hostname).map(|()| 0),
        Act::Container { plan } => node::container_process::run(&plan),
        Act::ContainerInit { plan } => node::container_init::run(&plan),
        Act::Exec { pod, command } => exec(&pod, &command),
        Act::ExecIn { pid, plan, command } => node::exec_process::run(pid, &plan, &command),
    }
}

/// Becomes the hidden command that enters the pod's first container.
fn exec(pod: &str, command: &[String]) -> Result<u8> {
    let (namespace, name) = pod.split_once('/').unwrap_or(("default", pod));
    let handle = runtime()?.block_on(async {
        let client = world::connect(&paths::pki("admin.kubeconfig")).await?;
        let pod = Api::<Pod>::namespaced(client, namespace).get(name).await;
        PodHandle::of(&pod.with_context(|| format!("get pod {namespace}/{name}"))?)
    })?;
    let container = handle.containers.first().context("the pod has no container")?;
    let exe = std::env::current_exe().context("find the world program")?;
    let error = Command::new(exe)
        .arg("__exec")
        .arg(handle.pid()?.to_string())
        .arg(paths::container_plan(&handle.uid, container))
        .arg("--")
        .args(command)
        .exec();
    Err(error).context("run the world program again")
}

/// One thread, so that children which die with their parent's thread die with
/// the process.
fn runtime() -> Result<tokio::runtime::Runtime> {
    tokio::runtime::Builder::new_current_thread().enable_all().build().context("start the async runtime")
}

/// The user's shell; the prompt tells the two worlds apart where the shell takes it.
fn shell() -> Vec<String> {
    let shell = std::env::var_os("SHELL").unwrap_or_else(|| "/bin/sh".into());
    vec!["env".into(), "PS1=(world) \\w \\$ ".into(), shell.to_string_lossy().into_owned()]
}
