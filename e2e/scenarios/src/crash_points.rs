//! The test's side of the feature `crash-points`: counts an operator's effects, and holds, kills or stops the
//! operator just before or after a chosen one.
//!
//! The operator asks on a Unix socket, one connection and one line each: `before|after <n> <effect>
//! <namespace>/<name>`. A line in answer lets it go on.

use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use anyhow::{Context, Result};
use nix::sys::signal::kill;
use nix::unistd::Pid;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::watch;
use tokio::task::JoinHandle;
use world::Signal;

/// Where in its effects an operator is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum When {
    Before,
    After,
}

/// Each operator has one of its own.
pub struct CrashPoints {
    socket: PathBuf,
    shared: Arc<Mutex<Shared>>,
    /// Whether those who were stopped may go on.
    released: watch::Sender<bool>,
    listening: JoinHandle<()>,
}

#[derive(Default)]
struct Shared {
    counting: bool,
    /// The operator's own number and the name of each effect begun since counting.
    begun: Vec<(String, String)>,
    trap: Option<Trap>,
    hit: Option<String>,
}

/// Which effect, counted since the trap was set.
#[derive(Clone, Debug)]
pub struct At {
    pub name: String,
    /// Of the effects of this name, from 0.
    pub nth: usize,
}

/// Holds the operator at an effect.
#[derive(Clone, Debug)]
pub struct Trap {
    pub at: At,
    pub when: When,
    /// Is sent at once, to this process.
    pub signal: Option<(Signal, i32)>,
}

impl CrashPoints {
    pub fn listen() -> Result<Self> {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let socket = std::env::temp_dir().join(format!("crash-points-{}-{number}", std::process::id()));
        let _ = std::fs::remove_file(&socket);
        let listener =
            UnixListener::bind(&socket).with_context(|| format!("listen on {}", socket.display()))?;
        let shared = Arc::new(Mutex::new(Shared::default()));
        let serving = shared.clone();
        let released = watch::Sender::new(false);
        let releasing = released.clone();
        let listening = tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(answer(stream, serving.clone(), releasing.subscribe()));
            }
        });
        Ok(Self { socket, shared, released, listening })
    }

    /// The operator's argument.
    pub fn argument(&self) -> String {
        format!("--crash-points-socket={}", self.socket.display())
    }

    /// Counts from here on. Whatever was hit before is forgotten.
    pub fn count(&self) {
        *lock(&self.shared) = Shared { counting: true, ..Shared::default() };
        self.released.send_replace(false);
    }

    /// Springs at that effect, counted from here on. Nothing goes on after it, until released.
    pub fn set(&self, trap: Trap) {
        self.count();
        lock(&self.shared).trap = Some(trap);
    }

    /// Stops the process before the first effect of this name from here on.
    pub fn stop_before(&self, name: &str, pid: i32) {
        let at = At { name: name.to_owned(), nth: 0 };
        self.set(Trap { at, when: When::Before, signal: Some((Signal::SIGSTOP, pid)) });
    }

    /// Whatever waits at an effect goes on.
    pub fn release(&self) {
        self.released.send_replace(true);
    }

    /// Names of the effects begun since counting.
    pub fn effects(&self) -> Vec<String> {
        lock(&self.shared).begun.iter().map(|(_, name)| name.clone()).collect()
    }

    /// Name of the effect at which the trap has sprung.
    pub fn hit(&self) -> Option<String> {
        lock(&self.shared).hit.clone()
    }
}

impl Drop for CrashPoints {
    fn drop(&mut self) {
        self.listening.abort();
        let _ = std::fs::remove_file(&self.socket);
    }
}

async fn answer(stream: UnixStream, shared: Arc<Mutex<Shared>>, mut released: watch::Receiver<bool>) {
    let mut stream = BufReader::new(stream);
    let mut line = String::new();
    if stream.read_line(&mut line).await.is_err() {
        return;
    }
    let held = lock(&shared).is_held(line.trim());
    if !held || released.wait_for(|released| *released).await.is_ok() {
        let _ = stream.write_all(b"go\n").await;
    }
}

impl Shared {
    /// Whether the operator may not go on from here.
    fn is_held(&mut self, line: &str) -> bool {
        let mut words = line.split(' ');
        let (Some(when), Some(id), Some(name)) = (words.next(), words.next(), words.next()) else {
            return false;
        };
        if self.hit.is_some() {
            return true;
        }
        if !self.counting {
            return false;
        }
        let when = if when == "before" { When::Before } else { When::After };
        if when == When::Before {
            self.begun.push((id.to_owned(), name.to_owned()));
        }
        // What was begun before counting has no number.
        let Some(number) = self.begun.iter().position(|(begun, _)| begun == id) else { return false };
        let nth = self.begun.iter().take(number).filter(|(_, begun)| begun == name).count();
        let is_here = |trap: &mut Trap| trap.when == when && trap.at.name == name && trap.at.nth == nth;
        let Some(trap) = self.trap.take_if(is_here) else {
            return false;
        };
        if let Some((signal, pid)) = trap.signal {
            let _ = kill(Pid::from_raw(pid), signal);
        }
        self.hit = Some(name.to_owned());
        true
    }
}

fn lock(shared: &Mutex<Shared>) -> std::sync::MutexGuard<'_, Shared> {
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}
