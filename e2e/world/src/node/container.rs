//! One container of a pod: its state, its run, and when it may run again.

use std::path::PathBuf;
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context, Result};
use k8s_openapi::api::core::v1::ContainerStatus;
use k8s_openapi::jiff::Timestamp;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::{Child, Command};
use tokio::sync::watch;
use tokio::time::Instant;

use super::backoff::Backoff;
use super::pod::{Mailbox, Message};
use crate::paths;

/// What `status.containerStatuses[].state` says.
#[derive(Clone, Debug)]
pub enum State {
    Waiting { reason: &'static str, message: String },
    Running { since: Timestamp },
    Terminated(Terminated),
}

#[derive(Clone, Debug)]
pub struct Terminated {
    pub code: i32,
    pub signal: i32,
    pub started: Timestamp,
    pub finished: Timestamp,
    pub id: String,
}

pub struct Container {
    pub name: String,
    pub init: bool,
    pub state: State,
    pub last: Option<Terminated>,
    pub ready: bool,
    pub started: bool,
    pub restarts: i32,
    /// New for each run.
    pub id: String,
    pub run: Option<Run>,
    /// Counts the starts, also those that failed.
    pub attempts: u32,
    /// A start that could not be made is tried again then.
    pub retry_at: Option<Instant>,
    begun: Instant,
    ended: Option<Instant>,
    backoff: Backoff,
    wait: Duration,
}

impl Container {
    pub fn new(name: &str, init: bool) -> Self {
        Self {
            name: name.into(),
            init,
            state: State::Waiting { reason: "ContainerCreating", message: String::new() },
            last: None,
            ready: false,
            started: false,
            restarts: 0,
            id: String::new(),
            run: None,
            attempts: 0,
            retry_at: None,
            begun: Instant::now(),
            ended: None,
            backoff: Backoff::default(),
            wait: Duration::ZERO,
        }
    }

    /// It ran on this node before the node crashed.
    pub fn crashed(&mut self, status: &ContainerStatus) {
        let Some(id) = status.container_id.clone().filter(|id| !id.is_empty()) else { return };
        let now = Timestamp::now();
        self.restarts = status.restart_count;
        self.attempts = u32::try_from(status.restart_count).unwrap_or(0) + 1;
        self.state = State::Terminated(Terminated { code: 255, signal: 0, started: now, finished: now, id });
        self.ended = Some(Instant::now());
    }

    /// The main process runs from here on.
    pub fn has_started(&mut self, uid: &str) {
        if let State::Terminated(ended) = &self.state {
            self.last = Some(ended.clone());
        }
        if self.ended.is_some() {
            self.restarts += 1;
        }
        self.id = format!("world://{uid}-{}-{}", self.name, self.attempts);
        self.begun = Instant::now();
        self.state = State::Running { since: Timestamp::now() };
    }

    /// The main process has ended.
    pub fn has_ended(&mut self, code: i32, signal: i32) {
        let now = Timestamp::now();
        let started = if let State::Running { since } = self.state { since } else { now };
        if self.id.is_empty() {
            self.id = format!("world://{}-{}", self.name, self.attempts);
        }
        let id = self.id.clone();
        self.state = State::Terminated(Terminated { code, signal, started, finished: now, id });
        (self.ready, self.started, self.run) = (false, false, None);
        self.wait = self.backoff.next(self.begun.elapsed());
        self.ended = Some(Instant::now());
    }

    /// It will run again, but not yet.
    pub fn back_off(&mut self, wait: Duration) {
        if let State::Terminated(ended) = &self.state {
            self.last = Some(ended.clone());
            let message = format!("back-off {}s restarting failed container", wait.as_secs());
            self.state = State::Waiting { reason: "CrashLoopBackOff", message };
        }
    }

    /// Ended for good and well, as an init container should.
    pub fn is_completed(&self) -> bool {
        self.run.is_none() && matches!(&self.state, State::Terminated(ended) if ended.code == 0)
    }

    /// Whether the pod's policy starts it again after its end.
    pub fn restarts_under(&self, policy: &str) -> bool {
        match (&self.state, policy, self.init) {
            (State::Terminated(ended), "Always", true) | (State::Terminated(ended), "OnFailure", _) => {
                ended.code != 0
            }
            (State::Terminated(_), "Never", _) => false,
            _ => true,
        }
    }

    /// When it may start: after a failed attempt, or after its end and the
    /// back-off, or the wait that a test has ordered.
    pub fn due(&self, namespace: &str, pod: &str) -> Instant {
        if let Some(retry) = self.retry_at {
            return retry;
        }
        let Some(ended) = self.ended else { return self.begun };
        let order = std::fs::read_to_string(paths::restart_delay(namespace, pod)).ok();
        let order = order.and_then(|text| text.trim().parse().ok()).map(Duration::from_millis);
        ended + order.unwrap_or(self.wait)
    }

    pub fn is_running(&self) -> bool {
        self.run.is_some()
    }
}

/// A run of a container: the process beside it and what is known of it.
#[derive(Clone)]
pub struct Run {
    pub attempt: u32,
    pub plan: PathBuf,
    beside: Pid,
    main: watch::Receiver<Option<i32>>,
    ended: watch::Receiver<bool>,
}

impl Run {
    /// Starts the container that `plan` describes; its fate comes by mail.
    pub fn start(plan: PathBuf, container: &str, attempt: u32, mailbox: Mailbox) -> Result<Self> {
        let exe = std::env::current_exe().context("find the world program")?;
        let child = Command::new(exe)
            .arg("__container")
            .arg(&plan)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .context("start a container")?;
        let beside =
            child.id().and_then(|id| i32::try_from(id).ok()).context("a new process has a number")?;
        let (main_known, main) = watch::channel(None);
        let (ending, ended) = watch::channel(false);
        let name = container.to_owned();
        tokio::spawn(async move {
            let (code, signal) = follow(child, |pid| {
                main_known.send_replace(Some(pid));
                mailbox.tell(Message::Started { container: name.clone(), attempt });
            })
            .await;
            ending.send_replace(true);
            mailbox.tell(Message::Ended { container: name, attempt, code, signal });
        });
        Ok(Self { attempt, plan, beside: Pid::from_raw(beside), main, ended })
    }

    /// The main process's number, once there is one.
    pub fn main(&self) -> Option<i32> {
        *self.main.borrow()
    }

    pub fn signal(&self, signal: Signal) {
        if *self.ended.borrow() {
            return;
        }
        let target = match (self.main(), signal) {
            (Some(pid), _) => Pid::from_raw(pid),
            // Not made yet: it dies with the process beside it.
            (None, Signal::SIGKILL) => self.beside,
            (None, _) => return,
        };
        // It may have ended just now.
        let _ = kill(target, signal);
    }

    /// Returns when the run is over.
    pub async fn over(&self) {
        // An error means that the watching task is gone, and so the run.
        let _ = self.ended.clone().wait_for(|ended| *ended).await;
    }
}

/// Reads what the process beside the container says until it ends.
async fn follow(mut child: Child, mut started: impl FnMut(i32)) -> (i32, i32) {
    let mut outcome = None;
    if let Some(words) = child.stdout.take() {
        let mut lines = BufReader::new(words).lines();
        while let Ok(Some(line)) = lines.next_line().await {
            let mut words = line.split(' ');
            let mut number = || words.next().and_then(|word| word.parse().ok());
            if let Some(rest) = line.strip_prefix("pid ") {
                if let Ok(pid) = rest.parse() {
                    started(pid);
                }
            } else if line.starts_with("exit ") {
                let _ = number();
                outcome = number().zip(number());
            }
        }
    }
    let status = child.wait().await;
    // Without a word: killed together with the container, or never made.
    let killed = status.is_ok_and(|status| status.code().is_none());
    outcome.unwrap_or(if killed { (137, 9) } else { (128, 0) })
}
