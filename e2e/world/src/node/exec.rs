//! Runs a command in a container from the pod runner, with a deadline.

use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;
use tokio::process::Command;
use tokio::time::timeout;

/// Runs `command` beside the main process `pid`; an exit code but 0 is an error.
pub async fn exec(pid: i32, plan: &Path, command: &[String], deadline: Duration) -> Result<()> {
    let exe = std::env::current_exe().context("find the world program")?;
    let mut child = Command::new(exe)
        .arg("__exec")
        .arg(pid.to_string())
        .arg(plan)
        .arg("--")
        .args(command)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        // A group of its own, so that a late command ends with its children.
        .process_group(0)
        .spawn()
        .context("start a command in the container")?;
    let group = child.id().and_then(|id| i32::try_from(id).ok()).context("a new process has a number")?;
    let Ok(status) = timeout(deadline, child.wait()).await else {
        // It may have ended just now.
        let _ = killpg(Pid::from_raw(group), Signal::SIGKILL);
        child.wait().await.context("wait for the killed command")?;
        bail!("{command:?} took longer than {deadline:?}")
    };
    let status = status.context("wait for the command in the container")?;
    if !status.success() {
        bail!("{command:?}: {status}");
    }
    Ok(())
}
