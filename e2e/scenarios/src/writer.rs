//! A client that never stops writing, and knows what was acknowledged, refused, or left open.
//!
//! Each write is a key of its own, so that afterwards every acknowledged one can be looked for. The load is
//! bounded: one write at a time, with a pause, for a limited time.
//!
//! It keeps connections open to all its addresses and makes new ones in the background, so that neither a
//! dead nor a silent server keeps it from finding the one that takes writes.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::{Context, Result};
use futures::FutureExt;
use redis::aio::MultiplexedConnection;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep, timeout};

/// No writer lives longer.
const LONGEST: Duration = Duration::from_secs(1800);

/// Pause after all addresses were tried without luck. The timer rounds it up to its next millisecond.
const AIR: Duration = Duration::from_micros(300);

/// Where a writer writes.
#[derive(Clone, Debug)]
pub enum Target {
    /// Whichever of these servers takes the write: a client that knows all pods.
    AnyOf(watch::Receiver<Vec<String>>),
    /// One address: the Service. A server that says no is left: only a new connection can lead elsewhere.
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
    /// Acknowledgements that came after at least one write that was not: the ends of outages.
    pub recoveries: Vec<Instant>,
}

impl Tally {
    /// The first acknowledgement after this moment.
    pub fn first_after(&self, moment: Instant) -> Option<Instant> {
        self.acknowledged.get(self.until(moment)).map(|(_, at)| *at)
    }

    /// The last acknowledgement before this moment.
    pub fn last_before(&self, moment: Instant) -> Option<Instant> {
        self.acknowledged.get(self.until(moment).checked_sub(1)?).map(|(_, at)| *at)
    }

    /// The end of the first outage that ended after this moment. An answer that was on its way when the
    /// server was killed ends none.
    pub fn recovery_after(&self, moment: Instant) -> Option<Instant> {
        self.recoveries.iter().copied().find(|at| *at > moment)
    }

    /// Number of acknowledgements up to this moment.
    fn until(&self, moment: Instant) -> usize {
        self.acknowledged.partition_point(|(_, at)| *at <= moment)
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
        self.look(limit, |tally| tally.first_after(moment)).await
    }

    /// Waits for the end of an outage that ends after this moment.
    pub async fn recovered_after(&self, moment: Instant, limit: Duration) -> Result<Instant> {
        self.look(limit, |tally| tally.recovery_after(moment)).await
    }

    async fn look(&self, limit: Duration, found: impl Fn(&Tally) -> Option<Instant>) -> Result<Instant> {
        let look = async {
            loop {
                let found = found(&lock(&self.tally));
                if let Some(at) = found {
                    return at;
                }
                sleep(Duration::from_millis(1)).await;
            }
        };
        timeout(limit, look).await.with_context(|| format!("no write was acknowledged within {limit:?}"))
    }

    /// Names of the acknowledged keys, without the first `skipped`.
    pub fn keys(&self, skipped: usize) -> Vec<String> {
        lock(&self.tally)
            .acknowledged
            .iter()
            .skip(skipped)
            .map(|(number, _)| key(&self.load, *number))
            .collect()
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
    let mut doors: Vec<Door> = Vec::new();
    let mut turn = 0;
    let mut number = 0;
    let mut failed_in_a_row = 0;
    while Instant::now() < end {
        let addresses = match &target {
            Target::AnyOf(addresses) => addresses.borrow().clone(),
            Target::Service(address) => vec![address.clone()],
        };
        doors.retain(|door| addresses.contains(&door.address));
        for address in addresses {
            if !doors.iter().any(|door| door.address == address) {
                doors.push(Door::new(address));
            }
        }
        let count = doors.len().max(1);
        let Some(door) = doors.get_mut(turn % count) else {
            sleep(load.pause).await;
            continue;
        };
        let outcome = door.write(&load, number).await;
        if matches!(outcome, Outcome::Acknowledged | Outcome::Open) {
            number += 1; // a key that may exist is not used again
        }
        if matches!((&outcome, &target), (Outcome::Refused, Target::Service(_))) {
            door.close();
        }
        if matches!(outcome, Outcome::Acknowledged) {
            note(&tally, &outcome, number - 1, failed_in_a_row > 0);
            failed_in_a_row = 0;
            sleep(load.pause).await;
        } else {
            note(&tally, &outcome, number, false);
            turn += 1;
            failed_in_a_row += 1;
            if failed_in_a_row % count == 0 {
                sleep(AIR).await;
            }
        }
    }
}

fn note(tally: &Mutex<Tally>, outcome: &Outcome, number: u64, recovered: bool) {
    let mut tally = lock(tally);
    match outcome {
        Outcome::Acknowledged => {
            let now = Instant::now();
            tally.acknowledged.push((number, now));
            if recovered {
                tally.recoveries.push(now);
            }
        }
        Outcome::Refused => tally.refused += 1,
        Outcome::Open => tally.open += 1,
        Outcome::Unconnected => tally.unconnected += 1,
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

/// One address, with the connection to it or the attempt to make one.
struct Door {
    address: String,
    open: Option<MultiplexedConnection>,
    opening: Option<JoinHandle<Option<MultiplexedConnection>>>,
}

impl Door {
    fn new(address: String) -> Self {
        Self { address, open: None, opening: None }
    }

    fn close(&mut self) {
        self.open = None;
    }

    /// The connection, if there is one; else one is being made.
    fn connection(&mut self, load: &Load) -> Option<&mut MultiplexedConnection> {
        if self.open.is_none() {
            match self.opening.as_mut().map(FutureExt::now_or_never) {
                Some(None) => return None,
                Some(Some(made)) => {
                    self.opening = None;
                    self.open = made.ok().flatten();
                }
                None => {
                    let (address, password, deadline) =
                        (self.address.clone(), load.password.clone(), load.deadline);
                    self.opening = Some(tokio::spawn(async move {
                        let connect = super::cluster::connect(&address, "default", &password);
                        timeout(deadline, connect).await.ok().and_then(Result::ok)
                    }));
                }
            }
        }
        self.open.as_mut()
    }

    async fn write(&mut self, load: &Load, number: u64) -> Outcome {
        let Some(open) = self.connection(load) else { return Outcome::Unconnected };
        let mut command = redis::cmd("SET");
        command.arg(key(load, number)).arg(number);
        match timeout(load.deadline, command.query_async::<()>(open)).await {
            Ok(Ok(())) => Outcome::Acknowledged,
            Ok(Err(error)) if error.is_io_error() || error.is_connection_dropped() => {
                self.close();
                Outcome::Open
            }
            Ok(Err(_)) => Outcome::Refused,
            Err(_) => {
                self.close();
                Outcome::Open
            }
        }
    }
}
