//! The running components: start, stop, freeze, thaw, and word of one that
//! ended by itself.

use std::collections::BTreeMap;
use std::fs::OpenOptions;
use std::path::PathBuf;
use std::process::Stdio;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use anyhow::{Context, Result, bail};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use tokio::process::Command;
use tokio::sync::{mpsc, watch};

use super::components::Component;
use crate::paths;

/// A component ended and nobody had asked for it.
#[derive(Debug)]
pub struct Died {
    pub component: String,
    pub how: String,
}

#[derive(Clone)]
pub struct Processes {
    world: PathBuf,
    kept: Arc<Mutex<BTreeMap<String, Kept>>>,
    died: mpsc::UnboundedSender<Died>,
}

struct Kept {
    component: Component,
    running: Option<Running>,
}

#[derive(Clone)]
struct Running {
    pid: Pid,
    /// Set before a stop, so that its end is no accident.
    asked: Arc<Mutex<bool>>,
    ended: watch::Receiver<bool>,
}

impl Processes {
    pub fn new(world: PathBuf) -> (Self, mpsc::UnboundedReceiver<Died>) {
        let (died, reports) = mpsc::unbounded_channel();
        (Self { world, kept: Arc::default(), died }, reports)
    }

    /// Takes a component into care and starts it.
    pub fn add(&self, component: Component) -> Result<()> {
        let name = component.name.clone();
        lock(&self.kept).insert(name.clone(), Kept { component, running: None });
        self.start(&name)
    }

    pub fn start(&self, name: &str) -> Result<()> {
        let mut kept = lock(&self.kept);
        let entry = kept.get_mut(name).with_context(|| format!("no component is called {name}"))?;
        if entry.running.as_ref().is_some_and(|running| !*running.ended.borrow()) {
            bail!("{name} runs already");
        }
        entry.running = Some(self.spawn(&entry.component)?);
        Ok(())
    }

    fn spawn(&self, component: &Component) -> Result<Running> {
        let name = component.name.clone();
        let log = paths::component_log(&name);
        let log = OpenOptions::new()
            .create(true)
            .append(true)
            .open(&log)
            .with_context(|| format!("open {}", log.display()))?;
        let mut command = match component.node {
            None => Command::new(&component.program),
            Some(node) => {
                let mut enter = Command::new(&self.world);
                enter.arg("__netns").arg(node.name()).arg("--").arg(&component.program);
                enter
            }
        };
        let mut child = command
            .args(&component.args)
            // A young API server collects its small heap all the time; on two cores that is a quarter of its work.
            .env("GOGC", "300")
            .stdin(Stdio::null())
            .stdout(log.try_clone().context("share the log")?)
            .stderr(log)
            .kill_on_drop(true)
            .spawn()
            .with_context(|| format!("start {name}"))?;
        let pid = Pid::from_raw(i32::try_from(child.id().context("a new process has a number")?)?);
        let asked = Arc::new(Mutex::new(false));
        let (ending, ended) = watch::channel(false);
        let (died, was_asked) = (self.died.clone(), asked.clone());
        tokio::spawn(async move {
            let how = match child.wait().await {
                Ok(status) => status.to_string(),
                Err(error) => error.to_string(),
            };
            ending.send_replace(true);
            if !*lock(&was_asked) {
                // Nobody listens any more when the world itself ends.
                let _ = died.send(Died { component: name, how });
            }
        });
        Ok(Running { pid, asked, ended })
    }

    /// Kills a component and waits until it is gone.
    pub async fn stop(&self, name: &str) -> Result<()> {
        let mut running = self.running(name)?;
        *lock(&running.asked) = true;
        kill(running.pid, Signal::SIGKILL).with_context(|| format!("kill {name}"))?;
        running.ended.wait_for(|ended| *ended).await.with_context(|| format!("wait for {name}"))?;
        Ok(())
    }

    pub fn signal(&self, name: &str, signal: Signal) -> Result<()> {
        let running = self.running(name)?;
        kill(running.pid, signal).with_context(|| format!("send {signal} to {name}"))
    }

    fn running(&self, name: &str) -> Result<Running> {
        let kept = lock(&self.kept);
        let entry = kept.get(name).with_context(|| format!("no component is called {name}"))?;
        match &entry.running {
            Some(running) if !*running.ended.borrow() => Ok(running.clone()),
            _ => bail!("{name} does not run"),
        }
    }
}

/// A panic elsewhere leaves these small values whole.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
