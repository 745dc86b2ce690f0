//! The first process: it moves into new namespaces, starts PID 1 of the new
//! world and waits for it. It must stay single-threaded: the kernel refuses a
//! new user namespace to a process with threads.

use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};

use anyhow::{Context, Result, bail};
use nix::sched::{CloneFlags, unshare};
use nix::unistd::{getegid, geteuid};

use super::options::Options;

/// A user cannot guess which of three switches a distribution has set.
const HOW_TO_ALLOW: &str = "the world needs user namespaces for ordinary users: \
     look at the sysctls user.max_user_namespaces (must not be 0), \
     kernel.unprivileged_userns_clone (must be 1 where it exists) and \
     kernel.apparmor_restrict_unprivileged_userns (must be 0 where it exists)";

/// Makes a world, runs the command in it, and returns its exit code.
pub fn run(options: &Options) -> Result<u8> {
    let (uid, gid) = (geteuid(), getegid());
    let flags = CloneFlags::CLONE_NEWUSER
        | CloneFlags::CLONE_NEWNS
        | CloneFlags::CLONE_NEWNET
        | CloneFlags::CLONE_NEWPID
        | CloneFlags::CLONE_NEWUTS
        | CloneFlags::CLONE_NEWIPC;
    unshare(flags).context("make new namespaces").context(HOW_TO_ALLOW)?;
    // One id is enough, and needs neither a helper program nor /etc/subuid.
    write_map("/proc/self/setgroups", "deny")?;
    write_map("/proc/self/uid_map", &format!("0 {uid} 1"))?;
    write_map("/proc/self/gid_map", &format!("0 {gid} 1"))?;

    let exe = std::env::current_exe().context("find the world program")?;
    let status = Command::new(exe)
        .arg("__pid1")
        .arg(serde_json::to_string(options)?)
        .status()
        .context("start the first process of the world")?;
    Ok(exit_code(status))
}

fn write_map(path: &str, text: &str) -> Result<()> {
    std::fs::write(path, text).with_context(|| format!("write {path}")).context(HOW_TO_ALLOW)
}

/// A shell's convention: 128 + the signal that ended the process.
pub fn exit_code(status: ExitStatus) -> u8 {
    let code = status.code().or_else(|| status.signal().map(|signal| 128 + signal));
    code.and_then(|code| u8::try_from(code).ok()).unwrap_or(u8::MAX)
}

/// The control plane's binary: as told, else built (or found built) from the
/// sources next to this crate. This must happen before there is no network.
pub fn kubebox(told: Option<PathBuf>) -> Result<PathBuf> {
    if let Some(path) = told {
        return Ok(path);
    }
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../kubebox/build.sh");
    let output = Command::new(&script)
        .stderr(Stdio::inherit())
        .output()
        .with_context(|| format!("run {}", script.display()))?;
    if !output.status.success() {
        bail!("{} failed: {}", script.display(), output.status);
    }
    Ok(PathBuf::from(String::from_utf8(output.stdout)?.trim()))
}
