//! A client that reads through a Service, on a new connection each time, and asks who answered.
//!
//! The load is bounded: one read at a time, with a pause, for a limited time.

use std::collections::BTreeMap;
use std::fmt::{self, Display, Formatter};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use redis::{RedisResult, Value, from_redis_value_ref};
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep, timeout};

use crate::cluster::connect;

/// No reader lives longer.
const LONGEST: Duration = Duration::from_secs(600);
const PAUSE: Duration = Duration::from_millis(5);
const DEADLINE: Duration = Duration::from_millis(500);

/// What became of a read.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// Answered by a replica whose link to its master is up.
    InSync,
    /// Answered by a master.
    Master,
    /// Answered by a replica without its master: it may be old.
    Stale,
    /// Answered, and the value is not the one that all servers had confirmed.
    Wrong(String),
    /// The server said no: the first word of its error.
    Refused(String),
    /// No connection or no answer.
    Unconnected,
}

/// Numbers of reads by endpoint and kind; where nobody answered, the endpoint is empty.
#[derive(Clone, Debug, Default)]
pub struct Reads(BTreeMap<(String, Kind), u64>);

impl Reads {
    /// How many were of such a kind.
    pub fn count(&self, wanted: impl Fn(&Kind) -> bool) -> u64 {
        self.0.iter().filter(|((_, kind), _)| wanted(kind)).map(|(_, count)| count).sum()
    }

    /// How many this endpoint answered.
    pub fn answered_by(&self, ip: &str) -> u64 {
        let answered = |kind: &Kind| matches!(kind, Kind::InSync | Kind::Master);
        self.0.iter().filter(|((at, kind), _)| at == ip && answered(kind)).map(|(_, count)| count).sum()
    }
}

impl Display for Reads {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|((ip, kind), count)| {
            let ip = if ip.is_empty() { "nobody" } else { ip };
            writeln!(f, "    {ip:<14} {:<24} {count:>6}", format!("{kind:?}"))
        })
    }
}

/// A reader at work; ends with its owner.
pub struct Reader {
    reads: Arc<Mutex<Reads>>,
    task: JoinHandle<()>,
}

impl Reader {
    /// Reads `key`, whose value is and stays `value`.
    pub fn start(address: String, password: String, key: String, value: String) -> Self {
        let reads = Arc::new(Mutex::new(Reads::default()));
        let counted = reads.clone();
        let task = tokio::spawn(async move {
            let end = Instant::now() + LONGEST;
            while Instant::now() < end {
                let read = timeout(DEADLINE, read(&address, &password, &key, &value)).await;
                let read = read.ok().flatten().unwrap_or((String::new(), Kind::Unconnected));
                *counted.lock().unwrap_or_else(PoisonError::into_inner).0.entry(read).or_default() += 1;
                sleep(PAUSE).await;
            }
        });
        Self { reads, task }
    }

    pub fn reads(&self) -> Reads {
        self.reads.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl Drop for Reader {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// One read; nothing: no connection or no answer.
async fn read(address: &str, password: &str, key: &str, value: &str) -> Option<(String, Kind)> {
    let mut app = connect(address, "default", password).await.ok()?;
    // In one pipeline, so that the role is the one that the answer was given in. The Service hides the server's
    // address; its side of the connection has it.
    let mut pipe = redis::pipe();
    pipe.cmd("CLIENT").arg("INFO").cmd("INFO").arg("replication").cmd("GET").arg(key).ignore_errors();
    let answers: Vec<RedisResult<Value>> = pipe.query_async(&mut app).await.ok()?;
    let [client, replication, got] = answers.as_slice() else { return None };
    let client: String = from_redis_value_ref(client.as_ref().ok()?).ok()?;
    let replication: String = from_redis_value_ref(replication.as_ref().ok()?).ok()?;
    let local = client.split_whitespace().find_map(|field| field.strip_prefix("laddr="))?;
    let ip = local.rsplit_once(':')?.0.to_owned();
    let says = |line: &str| replication.lines().any(|said| said == line);
    let kind = match got {
        Err(error) => Kind::Refused(error.code().unwrap_or("without a code").to_owned()),
        Ok(got) => match from_redis_value_ref::<Option<String>>(got) {
            Ok(Some(got)) if got == value => {
                if says("role:master") {
                    Kind::Master
                } else if says("role:slave") && says("master_link_status:up") {
                    Kind::InSync
                } else {
                    Kind::Stale
                }
            }
            other => Kind::Wrong(format!("{other:?}")),
        },
    };
    Some((ip, kind))
}
