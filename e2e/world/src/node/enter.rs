//! Moves the current process into a node's network namespace.

use std::fs::File;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result};
use nix::sched::{CloneFlags, setns};

use crate::inside::network::forward;
use crate::paths;

/// Enters the node's network, and lets it pass its pods' packets on.
pub fn network(node: &str) -> Result<()> {
    enter(&paths::node_namespace(node), CloneFlags::CLONE_NEWNET)?;
    forward("/proc/sys/net/ipv4/ip_forward")
}

/// Becomes `command` in the network of a node or a host.
pub fn run_in(node: &str, command: &[String]) -> Result<u8> {
    enter(&paths::node_namespace(node), CloneFlags::CLONE_NEWNET)?;
    let (program, args) = command.split_first().context("no command was given")?;
    // Returns only when it failed.
    Err(Command::new(program).args(args).exec()).with_context(|| format!("run {program} in {node}"))
}

/// Enters one namespace.
pub fn enter(file: &Path, kind: CloneFlags) -> Result<()> {
    let namespace = File::open(file).with_context(|| format!("open {}", file.display()))?;
    setns(namespace, kind).with_context(|| format!("enter {}", file.display()))
}
