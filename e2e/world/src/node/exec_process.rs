//! Runs one more program in a container: a probe, a hook, or a curious person.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};
use nix::sched::CloneFlags;
use nix::sched::setns;

use super::plan::Plan;
use crate::inside::outside::exit_code;

pub fn run(pid: i32, plan: &Path, command: &[String]) -> Result<u8> {
    let plan = Plan::read(plan)?;
    let kinds = [
        ("pid", CloneFlags::CLONE_NEWPID),
        ("net", CloneFlags::CLONE_NEWNET),
        ("uts", CloneFlags::CLONE_NEWUTS),
        ("ipc", CloneFlags::CLONE_NEWIPC),
        // Last, since the paths of the others are the world's.
        ("mnt", CloneFlags::CLONE_NEWNS),
    ];
    let mut namespaces = Vec::new();
    for (name, kind) in kinds {
        let path = PathBuf::from(format!("/proc/{pid}/ns/{name}"));
        let file = std::fs::File::open(&path).with_context(|| format!("open {}", path.display()))?;
        namespaces.push((name, kind, file));
    }
    for (name, kind, file) in namespaces {
        setns(file, kind).with_context(|| format!("enter the container's {name} namespace"))?;
    }
    let (program, args) = command.split_first().context("no command was given")?;
    // A child, since only children move into a process namespace.
    let status = Command::new(program)
        .args(args)
        .env_clear()
        .envs(plan.env)
        .current_dir(plan.working_directory)
        .status()
        .with_context(|| format!("run {program} in the container"))?;
    Ok(exit_code(status))
}
