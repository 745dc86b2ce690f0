//! The process that holds a pod's network, host name and IPC for as long as
//! the pod lives, so that its address survives the restarts of containers.
//!
//! It talks with the pod runner by lines: it says `ready` when the namespaces
//! are there, reads `ip` commands up to a single dot, runs them and says `up`.
//! The end of its input is the end of the pod.

use std::io::{BufRead, Write};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};
use nix::sched::{CloneFlags, unshare};
use nix::sys::prctl::set_pdeathsig;
use nix::sys::signal::Signal;

pub fn run(hostname: &str) -> Result<()> {
    set_pdeathsig(Signal::SIGKILL).context("ask for a signal when the parent dies")?;
    unshare(CloneFlags::CLONE_NEWNET | CloneFlags::CLONE_NEWUTS | CloneFlags::CLONE_NEWIPC)
        .context("make the pod's namespaces")?;
    nix::unistd::sethostname(hostname).context("set the pod's host name")?;
    say("ready")?;
    let mut lines = std::io::stdin().lock().lines();
    let mut batch = String::new();
    loop {
        let line = lines.next().context("the pod runner is gone")?.context("read a line")?;
        if line == "." {
            break;
        }
        batch.push_str(&line);
        batch.push('\n');
    }
    ip(&batch)?;
    say("up")?;
    for line in lines {
        line.context("wait for the end of the pod")?;
    }
    Ok(())
}

fn say(word: &str) -> Result<()> {
    let mut out = std::io::stdout().lock();
    writeln!(out, "{word}").and_then(|()| out.flush()).context("tell the pod runner")
}

fn ip(batch: &str) -> Result<()> {
    let mut ip = Command::new("ip")
        .args(["-batch", "-"])
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .spawn()
        .context("start ip")?;
    ip.stdin.take().context("a pipe was asked for")?.write_all(batch.as_bytes()).context("write to ip")?;
    let status = ip.wait().context("wait for ip")?;
    if !status.success() {
        bail!("ip: {status} for\n{batch}");
    }
    Ok(())
}
