//! The first process of a container: it makes the container's root directory,
//! moves into it and becomes the container's program.

use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result};
use nix::sched::{CloneFlags, unshare};
use nix::sys::prctl::set_pdeathsig;
use nix::sys::signal::Signal;

use super::plan::Plan;
use super::rootfs;

/// Exit codes as container runtimes give them.
const NOT_STARTED: u8 = 128;
const NOT_FOUND: u8 = 127;

pub fn run(file: &Path) -> Result<u8> {
    let plan = Plan::read(file)?;
    if let Err(error) = prepare(&plan) {
        eprintln!("container not started: {error:#}");
        return Ok(NOT_STARTED);
    }
    let Some((program, args)) = plan.argv.split_first() else {
        eprintln!("container not started: no command");
        return Ok(NOT_STARTED);
    };
    // Returns only when it failed.
    let error = Command::new(program)
        .args(args)
        .env_clear()
        .envs(plan.env.iter().map(|(name, value)| (name, value)))
        .current_dir(&plan.working_directory)
        .exec();
    eprintln!("container not started: run {program}: {error}");
    Ok(NOT_FOUND)
}

fn prepare(plan: &Plan) -> Result<()> {
    set_pdeathsig(Signal::SIGKILL).context("ask for a signal when the parent dies")?;
    // Here and not in the process beside: a change of the root directory moves
    // every process of the mount namespace along.
    unshare(CloneFlags::CLONE_NEWNS).context("make the container's mount namespace")?;
    rootfs::enter(plan)
}
