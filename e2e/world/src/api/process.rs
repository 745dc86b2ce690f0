//! A program that a test runs in the outer namespace, such as the operator.

use std::ffi::OsStr;
use std::fs::OpenOptions;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context, Result};
use k8s_openapi::jiff::Timestamp;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use tokio::process::{Child, Command};
use tokio::time::timeout;

use super::Host;
use crate::inside::outside::exit_code;
use crate::paths;

/// Ends with its owner: dropping it kills the program.
pub struct Process {
    name: String,
    child: Child,
    log: PathBuf,
}

impl Process {
    /// Starts `program`; what it prints goes to a log file named after `name`.
    /// `env` is added to the environment of the test.
    pub fn spawn<A, K, V>(
        name: &str,
        program: impl AsRef<OsStr>,
        args: impl IntoIterator<Item = A>,
        env: impl IntoIterator<Item = (K, V)>,
    ) -> Result<Self>
    where
        A: AsRef<OsStr>,
        K: AsRef<OsStr>,
        V: AsRef<OsStr>,
    {
        Self::start(name, Command::new(program), args, env)
    }

    /// Starts `program` with the address of a host instead of the outer one.
    pub fn spawn_on<A, K, V>(
        host: &Host,
        name: &str,
        program: impl AsRef<OsStr>,
        args: impl IntoIterator<Item = A>,
        env: impl IntoIterator<Item = (K, V)>,
    ) -> Result<Self>
    where
        A: AsRef<OsStr>,
        K: AsRef<OsStr>,
        V: AsRef<OsStr>,
    {
        let mut command = Command::new(paths::state("bin/world"));
        command.arg("__netns").arg(&host.namespace).arg("--").arg(program);
        Self::start(name, command, args, env)
    }

    fn start<A, K, V>(
        name: &str,
        mut command: Command,
        args: impl IntoIterator<Item = A>,
        env: impl IntoIterator<Item = (K, V)>,
    ) -> Result<Self>
    where
        A: AsRef<OsStr>,
        K: AsRef<OsStr>,
        V: AsRef<OsStr>,
    {
        // Two tests may give the same name.
        let unique = format!("{name}-{}-{}.log", std::process::id(), Timestamp::now().as_nanosecond());
        let log = paths::state("process").join(unique);
        let file = OpenOptions::new()
            .create(true)
            .append(true)
            .open(&log)
            .with_context(|| format!("open {}", log.display()))?;
        let child = command
            .args(args)
            .envs(env)
            .stdin(Stdio::null())
            .stdout(file.try_clone().context("share the log")?)
            .stderr(file)
            .kill_on_drop(true)
            .spawn()
            .with_context(|| format!("start {name}"))?;
        Ok(Self { name: name.into(), child, log })
    }

    /// The process's number; nothing when it has ended and was waited for.
    pub fn pid(&self) -> Option<i32> {
        self.child.id().and_then(|id| i32::try_from(id).ok())
    }

    pub fn kill(&self, signal: Signal) -> Result<()> {
        let pid = self.pid().with_context(|| format!("{} has ended", self.name))?;
        kill(Pid::from_raw(pid), signal).with_context(|| format!("send {signal} to {}", self.name))
    }

    /// Waits for its end; the code is 128 + N where signal N ended it.
    pub async fn wait(&mut self, limit: Duration) -> Result<u8> {
        let status = timeout(limit, self.child.wait()).await;
        let status = status.with_context(|| format!("{} did not end within {limit:?}", self.name))?;
        Ok(exit_code(status.with_context(|| format!("wait for {}", self.name))?))
    }

    pub fn log_file(&self) -> &Path {
        &self.log
    }

    /// All that it has printed so far.
    pub fn log(&self) -> Result<String> {
        let bytes = std::fs::read(&self.log).with_context(|| format!("read {}", self.log.display()))?;
        Ok(String::from_utf8_lossy(&bytes).into_owned())
    }
}
