//! What the two Services of a cluster lead to, over time, and whether the servers behind the replicas Service are
//! in sync: looked at every 20 ms.

use std::collections::{BTreeSet, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use anyhow::Result;
use k8s_openapi::api::discovery::v1::EndpointSlice;
use kube::Api;
use kube::api::ListParams;
use redis::aio::MultiplexedConnection;
use redis_ha_operator::api::names::{CLUSTER_LABEL, replicas_service};
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep, timeout};

use crate::cluster::{Cluster, connect};

/// Nobody watches longer.
const LONGEST: Duration = Duration::from_secs(600);
const PAUSE: Duration = Duration::from_millis(20);
const DEADLINE: Duration = Duration::from_millis(500);

pub type Addresses = BTreeSet<String>;

/// Addresses in both slices at one moment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Led {
    pub master: Addresses,
    pub replicas: Addresses,
}

/// What was seen so far.
#[derive(Clone, Debug, Default)]
pub struct Course {
    /// Each change, oldest first.
    pub changes: Vec<(Instant, Led)>,
    /// The longest time that the replicas slice named an address whose server answered and was out of sync.
    pub longest_out: Duration,
    /// Number of looks at the slices.
    pub looks: u64,
}

impl Course {
    /// The first change after this moment to something wanted.
    pub fn first_after(&self, moment: Instant, wanted: impl Fn(&Led) -> bool) -> Option<Instant> {
        self.changes.iter().find(|(at, led)| *at > moment && wanted(led)).map(|(at, _)| *at)
    }

    /// The last that was seen.
    pub fn last(&self) -> Led {
        self.changes.last().map(|(_, led)| led.clone()).unwrap_or_default()
    }
}

/// Looks until its owner ends.
pub struct Slices {
    course: Arc<Mutex<Course>>,
    task: JoinHandle<()>,
}

impl Slices {
    pub async fn watch(cluster: &Cluster) -> Result<Self> {
        let course = Arc::new(Mutex::new(Course::default()));
        let task = tokio::spawn(look_on(cluster.clone(), cluster.password().await?, course.clone()));
        Ok(Self { course, task })
    }

    pub fn course(&self) -> Course {
        lock(&self.course).clone()
    }
}

impl Drop for Slices {
    fn drop(&mut self) {
        self.task.abort();
    }
}

fn lock(course: &Mutex<Course>) -> MutexGuard<'_, Course> {
    course.lock().unwrap_or_else(PoisonError::into_inner)
}

async fn look_on(cluster: Cluster, password: String, course: Arc<Mutex<Course>>) {
    let end = Instant::now() + LONGEST;
    let mut servers: HashMap<String, MultiplexedConnection> = HashMap::new();
    let mut out_since: HashMap<String, Instant> = HashMap::new();
    while Instant::now() < end {
        sleep(PAUSE).await;
        let Ok(Ok(led)) = timeout(DEADLINE, look(&cluster)).await else { continue };
        let now = Instant::now();
        {
            let mut course = lock(&course);
            course.looks += 1;
            if course.changes.last().is_none_or(|(_, last)| *last != led) {
                course.changes.push((now, led.clone()));
            }
        }
        servers.retain(|ip, _| led.replicas.contains(ip));
        out_since.retain(|ip, _| led.replicas.contains(ip));
        for ip in &led.replicas {
            // Who does not answer gives no old answers either.
            if timeout(DEADLINE, serves(&mut servers, ip, &password)).await.ok().flatten() == Some(false) {
                let out = out_since.entry(ip.clone()).or_insert(now).elapsed();
                let mut course = lock(&course);
                course.longest_out = course.longest_out.max(out);
            } else {
                out_since.remove(ip);
            }
        }
    }
}

/// One list, so that both slices are seen at the same moment.
async fn look(cluster: &Cluster) -> Result<Led> {
    let api: Api<EndpointSlice> = Api::namespaced(cluster.world.client(), &cluster.namespace);
    let ours = ListParams::default().labels(&format!("{CLUSTER_LABEL}={}", cluster.name));
    let mut led = Led::default();
    for slice in api.list(&ours).await? {
        let addresses = slice.endpoints.into_iter().flat_map(|endpoint| endpoint.addresses).collect();
        match slice.metadata.name {
            Some(name) if name == cluster.name => led.master = addresses,
            Some(name) if name == replicas_service(&cluster.name) => led.replicas = addresses,
            _ => {}
        }
    }
    Ok(led)
}

/// Is this server a master or in sync with one? Nothing: no answer.
async fn serves(
    servers: &mut HashMap<String, MultiplexedConnection>,
    ip: &str,
    password: &str,
) -> Option<bool> {
    if !servers.contains_key(ip) {
        servers.insert(ip.to_owned(), connect(ip, "default", password).await.ok()?);
    }
    let asked: Result<String, _> =
        redis::cmd("INFO").arg("replication").query_async(servers.get_mut(ip)?).await;
    let Ok(info) = asked else {
        servers.remove(ip);
        return None;
    };
    let says = |line: &str| info.lines().any(|said| said == line);
    Some(says("role:master") || says("master_link_status:up"))
}
