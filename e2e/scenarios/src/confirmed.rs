//! A client that counts only what `WAIT` confirmed: such a write must survive the fault of any one server.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use redis::aio::MultiplexedConnection;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep, timeout};

use crate::cluster::connect;

/// No writer lives longer.
const LONGEST: Duration = Duration::from_secs(300);
const PAUSE: Duration = Duration::from_millis(10);
const DEADLINE: Duration = Duration::from_millis(500);

/// Writes to whichever of some servers is master; ends with its owner.
pub struct Confirming {
    keys: Arc<Mutex<Vec<String>>>,
    task: JoinHandle<()>,
}

impl Confirming {
    /// `prefix` begins each key.
    pub fn start(prefix: &str, addresses: Vec<String>, password: String) -> Self {
        let keys = Arc::new(Mutex::new(Vec::new()));
        let task = tokio::spawn(write(prefix.to_owned(), addresses, password, keys.clone()));
        Self { keys, task }
    }

    /// The keys that a replica confirmed so far.
    pub fn keys(&self) -> Vec<String> {
        self.keys.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl Drop for Confirming {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn write(prefix: String, addresses: Vec<String>, password: String, keys: Arc<Mutex<Vec<String>>>) {
    let end = Instant::now() + LONGEST;
    let mut number = 0_u64;
    while Instant::now() < end {
        for address in &addresses {
            let Ok(Ok(mut app)) = timeout(DEADLINE, connect(address, "default", &password)).await else {
                continue;
            };
            while Instant::now() < end {
                number += 1;
                let key = format!("{prefix}-{number}");
                if !confirmed(&mut app, &key).await {
                    break;
                }
                keys.lock().unwrap_or_else(PoisonError::into_inner).push(key);
                sleep(PAUSE).await;
            }
        }
        sleep(PAUSE).await;
    }
}

async fn confirmed(app: &mut MultiplexedConnection, key: &str) -> bool {
    let mut pipe = redis::pipe();
    pipe.cmd("SET").arg(key).arg("value").ignore().cmd("WAIT").arg(1).arg(200);
    let asked = timeout(DEADLINE, pipe.query_async::<(u32,)>(app)).await;
    matches!(asked, Ok(Ok((replicas,))) if replicas >= 1)
}
