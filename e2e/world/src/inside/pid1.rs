//! PID 1 of the world: mounts what the world needs, starts the supervisor,
//! collects orphans, and with its own end the kernel ends everything else.

use std::process::Command;

use anyhow::{Context, Result};
use nix::errno::Errno;
use nix::mount::{MsFlags, mount};
use nix::sys::prctl::set_pdeathsig;
use nix::sys::signal::Signal;
use nix::sys::wait::{WaitStatus, wait};

use crate::paths;

pub fn run(options: &str) -> Result<u8> {
    // Whoever kills the process outside wants the world gone.
    set_pdeathsig(Signal::SIGKILL).context("ask for a signal when the parent dies")?;
    mounts().context(
        "set up the world's mounts; if this is 'permission denied', \
         look at the sysctl kernel.apparmor_restrict_unprivileged_userns",
    )?;
    nix::unistd::sethostname("world").context("set the host name")?;

    let exe = std::env::current_exe().context("find the world program")?;
    let supervisor =
        Command::new(exe).arg("__supervisor").arg(options).spawn().context("start the supervisor")?;
    let supervisor = i32::try_from(supervisor.id())?;
    loop {
        match wait() {
            Ok(WaitStatus::Exited(pid, code)) if pid.as_raw() == supervisor => {
                return Ok(u8::try_from(code).unwrap_or(u8::MAX));
            }
            Ok(WaitStatus::Signaled(pid, signal, _)) if pid.as_raw() == supervisor => {
                return Ok(128 + u8::try_from(signal as i32).unwrap_or(0));
            }
            Ok(_) | Err(Errno::EINTR) => {}
            Err(error) => return Err(error).context("wait for the world's processes"),
        }
    }
}

fn mounts() -> Result<()> {
    let none = None::<&str>;
    mount(none, "/", none, MsFlags::MS_REC | MsFlags::MS_PRIVATE, none).context("make mounts private")?;
    let plain = MsFlags::MS_NOSUID | MsFlags::MS_NODEV;
    mount(Some("proc"), "/proc", Some("proc"), plain | MsFlags::MS_NOEXEC, none).context("mount /proc")?;
    // Hides the host's sockets, and gives `ip netns` and the state a place.
    mount(Some("tmpfs"), "/run", Some("tmpfs"), plain, Some("mode=0755")).context("mount /run")?;
    for directory in ["/run/netns", paths::STATE] {
        std::fs::create_dir_all(directory).with_context(|| format!("create {directory}"))?;
    }
    Ok(())
}
