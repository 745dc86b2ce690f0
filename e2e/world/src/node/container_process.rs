//! The process beside a container: it starts the container's PID 1, waits for
//! it and tells the pod runner its number and how it ended.
//!
//! A program from elsewhere would not do: the usual ones lose the signal that
//! ended their child, and 137 is what a test looks for.

use std::fs::OpenOptions;
use std::io::Write;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result};
use nix::sched::{CloneFlags, unshare};
use nix::sys::prctl::set_pdeathsig;
use nix::sys::signal::Signal;

use super::enter::enter;
use super::log_reader;
use super::plan::Plan;

pub fn run(file: &Path) -> Result<u8> {
    set_pdeathsig(Signal::SIGKILL).context("ask for a signal when the parent dies")?;
    let plan = Plan::read(file)?;
    let log = OpenOptions::new()
        .create(true)
        .append(true)
        .open(&plan.log)
        .with_context(|| format!("open {}", plan.log.display()))?;
    log_reader::begin(&plan.log)?;
    let exe = std::env::current_exe().context("find the world program")?;
    let shared = [
        ("net", CloneFlags::CLONE_NEWNET),
        ("uts", CloneFlags::CLONE_NEWUTS),
        ("ipc", CloneFlags::CLONE_NEWIPC),
    ];
    for (name, kind) in shared {
        enter(&PathBuf::from(format!("/proc/{}/ns/{name}", plan.sandbox)), kind)?;
    }
    // Its own process namespace: when the main process dies the kernel ends all
    // its children, as in a real container, and none of them keeps the port.
    unshare(CloneFlags::CLONE_NEWPID).context("make the container's process namespace")?;
    let mut child = Command::new(exe)
        .arg("__container_init")
        .arg(file)
        .stdin(Stdio::null())
        .stdout(log.try_clone().context("share the log")?)
        .stderr(log)
        .spawn()
        .context("start the container's first process")?;
    publish(&plan.pid_file, child.id())?;
    say(&format!("pid {}", child.id()))?;
    let status = child.wait().context("wait for the container")?;
    // A number without a process could soon be somebody else's.
    let _ = std::fs::remove_file(&plan.pid_file);
    let signal = status.signal().unwrap_or(0);
    say(&format!("exit {} {signal}", status.code().unwrap_or(128 + signal)))?;
    Ok(0)
}

fn publish(file: &Path, pid: u32) -> Result<()> {
    let unfinished = file.with_extension("new");
    std::fs::write(&unfinished, pid.to_string())
        .and_then(|()| std::fs::rename(&unfinished, file))
        .with_context(|| format!("write {}", file.display()))
}

fn say(line: &str) -> Result<()> {
    let mut out = std::io::stdout().lock();
    writeln!(out, "{line}").and_then(|()| out.flush()).context("tell the pod runner")
}
