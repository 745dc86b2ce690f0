//! A client that never stops writing, and knows what was acknowledged, refused, or left open.
//!
//! Each write is a key of its own, so that afterwards every acknowledged one can be looked for. The load is
//! bounded: one write at a time, with a pause, for a limited time.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::{Context, Result};
use redis::aio::MultiplexedConnection;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep, timeout};

/// No writer lives longer.
const LONGEST: Duration = Duration::from_secs(600);

/// Where a writer writes.
#[derive(Clone, Debug)]
pub enum Target {
    /// Whichever of these servers takes the write: a client that knows all pods.
    AnyOf(watch::Receiver<Vec<String>>),
    /// One address: the Service.
    Service(String),
}

/// How a writer writes.
#[derive(Clone, Debug)]
pub struct Load {
    /// Beginning of its keys.
    pub prefix: String,
    pub password: String,
    pub pause: Duration,
    /// Deadline of one write, and of one connect.
    pub deadline: Duration,
}

/// What became of the writes so far.
#[derive(Clone, Debug, Default)]
pub struct Tally {
    /// Number of each acknowledged write, and when.
    pub acknowledged: Vec<(u64, Instant)>,
    /// The server said no.
    pub refused: u64,
    /// No answer: it may or may not have been done.
    pub open: u64,
    /// No connection.
    pub unconnected: u64,
}

impl Tally {
    /// The first acknowledgement after this moment.
    pub fn first_after(&self, moment: Instant) -> Option<Instant> {
        self.acknowledged.iter().map(|(_, at)| *at).find(|at| *at > moment)
    }

    /// The last acknowledgement before this moment.
    pub fn last_before(&self, moment: Instant) -> Option<Instant> {
        self.acknowledged.iter().rev().map(|(_, at)| *at).find(|at| *at <= moment)
    }
}

/// A writer at work; ends with its owner.
pub struct Writer {
    load: Load,
    tally: Arc<Mutex<Tally>>,
    task: JoinHandle<()>,
}

impl Writer {
    pub fn start(target: Target, load: Load) -> Self {
        let tally = Arc::new(Mutex::new(Tally::default()));
        let task = tokio::spawn(write(target, load.clone(), tally.clone()));
        Self { load, tally, task }
    }

    pub fn tally(&self) -> Tally {
        lock(&self.tally).clone()
    }

    /// Waits for an acknowledgement after this moment.
    pub async fn acknowledged_after(&self, moment: Instant, limit: Duration) -> Result<Instant> {
        let look = async {
            loop {
                let last = lock(&self.tally).first_after(moment);
                if let Some(at) = last {
                    return at;
                }
                sleep(Duration::from_millis(1)).await;
            }
        };
        timeout(limit, look).await.with_context(|| format!("no write was acknowledged within {limit:?}"))
    }

    /// Ends it; what became of its writes, and the names of the acknowledged keys.
    pub fn stop(self) -> (Tally, Vec<String>) {
        self.task.abort();
        let tally = self.tally();
        let keys = tally.acknowledged.iter().map(|(number, _)| key(&self.load, *number)).collect();
        (tally, keys)
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        self.task.abort();
    }
}

fn key(load: &Load, number: u64) -> String {
    format!("{}-{number}", load.prefix)
}

async fn write(target: Target, load: Load, tally: Arc<Mutex<Tally>>) {
    let end = Instant::now() + LONGEST;
    let mut connections: Vec<(String, Option<MultiplexedConnection>)> = Vec::new();
    let mut turn = 0;
    let mut number = 0;
    while Instant::now() < end {
        let addresses = match &target {
            Target::AnyOf(addresses) => addresses.borrow().clone(),
            Target::Service(address) => vec![address.clone()],
        };
        connections.retain(|(address, _)| addresses.contains(address));
        for address in &addresses {
            if !connections.iter().any(|(known, _)| known == address) {
                connections.push((address.clone(), None));
            }
        }
        let count = connections.len();
        let Some((address, connection)) = connections.get_mut(turn % count.max(1)) else {
            sleep(load.pause).await;
            continue;
        };
        match attempt(address, connection, &load, number).await {
            Outcome::Acknowledged => {
                lock(&tally).acknowledged.push((number, Instant::now()));
                number += 1;
                sleep(load.pause).await;
                continue;
            }
            Outcome::Refused => lock(&tally).refused += 1,
            Outcome::Unconnected => lock(&tally).unconnected += 1,
            Outcome::Open => {
                lock(&tally).open += 1;
                number += 1; // that key may exist: it is not used again
            }
        }
        turn += 1;
        // Once around without luck: leave the servers some air.
        let pause =
            if turn % count.max(1) == 0 { Duration::from_millis(1) } else { Duration::from_micros(100) };
        sleep(pause).await;
    }
}

fn lock(tally: &Mutex<Tally>) -> std::sync::MutexGuard<'_, Tally> {
    tally.lock().unwrap_or_else(PoisonError::into_inner)
}

enum Outcome {
    Acknowledged,
    Refused,
    Open,
    Unconnected,
}

async fn attempt(
    address: &str,
    connection: &mut Option<MultiplexedConnection>,
    load: &Load,
    number: u64,
) -> Outcome {
    if connection.is_none() {
        let connect = super::cluster::connect(address, "default", &load.password);
        *connection = timeout(load.deadline, connect).await.ok().and_then(Result::ok);
    }
    let Some(open) = connection else { return Outcome::Unconnected };
    let mut command = redis::cmd("SET");
    command.arg(key(load, number)).arg(number);
    match timeout(load.deadline, command.query_async::<()>(open)).await {
        Ok(Ok(())) => Outcome::Acknowledged,
        Ok(Err(error)) if error.is_io_error() || error.is_connection_dropped() => {
            *connection = None;
            Outcome::Open
        }
        Ok(Err(_)) => Outcome::Refused,
        Err(_) => {
            *connection = None;
            Outcome::Open
        }
    }
}
