//! Brings a world up, runs the command in it, and reports its exit code.

use std::collections::BTreeSet;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result};
use k8s_openapi::api::core::v1::{Node, ServiceAccount};
use k8s_openapi::api::storage::v1::StorageClass;
use kube::api::PostParams;
use kube::{Api, Client};
use tokio::net::{TcpStream, UnixListener};
use tokio::process::Command;
use tokio::sync::mpsc::UnboundedReceiver;
use tokio::time::{Instant, sleep, timeout};

use super::options::Options;
use super::processes::{Died, Processes};
use super::{components, control, network, outside};
use crate::addresses::{API_PORT, API_SERVICE, NodeNumber, OUTER, SERVICES};
use crate::api::{self, api_ready, connect};
use crate::node::claims;
use crate::{paths, program};

/// A busy machine needs ten seconds; a broken one should not look busy for ever.
const START_DEADLINE: Duration = Duration::from_secs(120);

/// How long one look at a starting component may take, and the pause between two.
const LOOK: Duration = Duration::from_secs(2);
const PAUSE: Duration = Duration::from_millis(25);

pub async fn run(options: Options) -> Result<u8> {
    let world = std::env::current_exe().context("find the world program")?;
    let (processes, mut died) = Processes::new(world.clone());
    let begun = Instant::now();
    let ended = tokio::select! {
        up = timeout(START_DEADLINE, bring_up(&options, &world, &processes, begun)) => {
            up.with_context(|| format!("the world was not ready within {START_DEADLINE:?}")).and_then(|up| up)
        }
        Some(died) = died.recv() => Err(fatal(&died)),
    };
    let outcome = match ended {
        Ok(()) => command(&options, &mut died).await,
        Err(error) => Err(error),
    };
    if let Some(directory) = &options.keep_logs {
        keep_logs(directory)?;
    }
    outcome
}

async fn bring_up(options: &Options, world: &Path, processes: &Processes, begun: Instant) -> Result<()> {
    let say = |what: &str| eprintln!("world: {what} after {:.1} s", begun.elapsed().as_secs_f64());
    directories(options, world)?;
    let address = format!("--address={OUTER}");
    let kubebox = options.kubebox.to_str().context("the path of kubebox is not UTF-8")?;
    let pki = ["pki", "--dir", "/run/world/pki", &address, "--service-cidr", SERVICES];
    // Only the loopback interface is needed for etcd; the rest comes up meanwhile.
    tokio::try_join!(network::build(options.nodes), program::run(kubebox, &pki, ""))?;
    let listener = UnixListener::bind(paths::control_socket()).context("open the control socket")?;
    tokio::spawn(control::serve(listener, processes.clone()));

    processes.add(components::etcd(&options.kubebox))?;
    open("127.0.0.1", 2379).await;
    say("network and etcd up");
    processes.add(components::api_server(&options.kubebox))?;
    open(OUTER, API_PORT).await;
    let client = connect(&paths::pki("admin.kubeconfig")).await?;
    api_ready(&client).await;
    say("API server ready");
    storage_class(&client).await?;
    processes.add(components::controller_manager(&options.kubebox))?;
    processes.add(components::scheduler(&options.kubebox))?;
    let nodes: Vec<_> = (1..=options.nodes).map(NodeNumber).collect();
    for node in &nodes {
        processes.add(components::node_agent(world, *node))?;
    }
    for node in nodes.iter().copied().map(Some).chain([None]) {
        processes.add(components::proxy(&options.kubebox, node, options.fast_proxy))?;
    }
    tokio::join!(controllers_work(&client), nodes_ready(&client, &nodes), open(API_SERVICE, 443));
    say(&format!("{} nodes and Services ready", options.nodes));
    Ok(())
}

async fn storage_class(client: &Client) -> Result<()> {
    let classes = Api::<StorageClass>::all(client.clone());
    let class = serde_json::from_value(claims::storage_class())?;
    classes.create(&PostParams::default(), &class).await.map(drop).context("create the storage class")
}

fn directories(options: &Options, world: &Path) -> Result<()> {
    let made = [
        "bin",
        "log",
        "pods",
        "pod-logs",
        "restart-delay",
        "cuts",
        "process",
        "kubeconfig",
        "images",
        "persistent-volumes",
    ];
    for directory in made.map(paths::state) {
        std::fs::create_dir_all(&directory).with_context(|| format!("create {}", directory.display()))?;
    }
    symlink(&options.kubebox, paths::state("bin/kubectl")).context("link kubectl")?;
    symlink(world, paths::state("bin/world")).context("link world")?;
    std::fs::write(paths::state("audit-policy.yaml"), components::AUDIT_POLICY)
        .context("write the audit policy")?;
    options.images.iter().try_for_each(|(name, directory)| api::add_image(name, directory))
}

/// Waits until something accepts connections. The caller holds the deadline.
async fn open(host: &str, port: u16) {
    while !matches!(timeout(LOOK, TcpStream::connect((host, port))).await, Ok(Ok(_))) {
        sleep(PAUSE).await;
    }
}

/// The default `ServiceAccount` exists only where the controller-manager works.
async fn controllers_work(client: &Client) {
    let accounts = Api::<ServiceAccount>::namespaced(client.clone(), "default");
    while !matches!(timeout(LOOK, accounts.get("default")).await, Ok(Ok(_))) {
        sleep(PAUSE).await;
    }
}

async fn nodes_ready(client: &Client, nodes: &[NodeNumber]) {
    let wanted: BTreeSet<_> = nodes.iter().map(|node| node.name()).collect();
    let api = Api::<Node>::all(client.clone());
    loop {
        if let Ok(Ok(list)) = timeout(LOOK, api.list(&kube::api::ListParams::default())).await {
            let ready: BTreeSet<_> =
                list.into_iter().filter(is_usable).filter_map(|node| node.metadata.name).collect();
            if wanted.is_subset(&ready) {
                return;
            }
        }
        sleep(PAUSE).await;
    }
}

/// A fresh node is Ready a moment before its not-ready taint is taken off.
fn is_usable(node: &Node) -> bool {
    let conditions = node.status.as_ref().and_then(|status| status.conditions.as_ref());
    let ready = conditions.is_some_and(|conditions| {
        conditions.iter().any(|condition| condition.type_ == "Ready" && condition.status == "True")
    });
    let taints = node.spec.as_ref().and_then(|spec| spec.taints.as_ref());
    ready && taints.is_none_or(Vec::is_empty)
}

/// Runs the command in the outer namespace until it ends or the world breaks.
async fn command(options: &Options, died: &mut UnboundedReceiver<Died>) -> Result<u8> {
    let (program, args) = options.command.split_first().context("no command was given")?;
    let path = std::env::var_os("PATH").unwrap_or_default();
    let path = std::env::join_paths(
        std::iter::once(paths::state("bin")).chain(std::env::split_paths(&path)).collect::<Vec<PathBuf>>(),
    )?;
    let mut child = Command::new(program)
        .args(args)
        .env("KUBECONFIG", paths::pki("admin.kubeconfig"))
        .env("PATH", path)
        .env("WORLD", paths::STATE)
        .spawn()
        .with_context(|| format!("start {program}"))?;
    tokio::select! {
        status = child.wait() => Ok(outside::exit_code(status.context("wait for the command")?)),
        Some(died) = died.recv() => Err(fatal(&died)),
    }
}

/// A world without one of its parts would only confuse a test.
fn fatal(died: &Died) -> anyhow::Error {
    let log = std::fs::read_to_string(paths::component_log(&died.component)).unwrap_or_default();
    let lines: Vec<_> = log.lines().collect();
    let tail = lines.get(lines.len().saturating_sub(15)..).unwrap_or_default().join("\n");
    anyhow::anyhow!("{} ended unasked: {}\n{tail}", died.component, died.how)
}

fn keep_logs(to: &Path) -> Result<()> {
    for part in ["log", "pod-logs", "process"] {
        copy(&paths::state(part), &to.join(part))
            .with_context(|| format!("copy {part} to {}", to.display()))?;
    }
    Ok(())
}

fn copy(from: &Path, to: &Path) -> Result<()> {
    if !from.is_dir() {
        std::fs::copy(from, to)?;
        return Ok(());
    }
    std::fs::create_dir_all(to)?;
    for entry in std::fs::read_dir(from)? {
        let entry = entry?;
        copy(&entry.path(), &to.join(entry.file_name()))?;
    }
    Ok(())
}
