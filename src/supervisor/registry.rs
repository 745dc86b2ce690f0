//! All supervised clusters: which task runs for which, and what it was told last.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::{mpsc, watch};
use tokio::task::AbortHandle;

use super::crash_points::CrashPoints;
use super::outside::Outside;
use super::perform::{Performer, Shared};
use super::task::{self, Machine, Seen, Watched};
use super::{ClusterInput, ClusterKey, OwnedPod, WatchedReads, WatchedRoute};

/// Makes the state machine of a cluster from its uid.
pub type NewMachine = Box<dyn Fn(String) -> Box<dyn Machine> + Send + Sync>;

/// The door for the controller and the watches. Words may come in any order: pods and slices that come before
/// their cluster are kept for it.
pub struct Supervisors {
    outside: Arc<dyn Outside>,
    new_machine: NewMachine,
    shared: Shared,
    clusters: Mutex<HashMap<ClusterKey, Supervised>>,
}

struct Supervised {
    watched: watch::Sender<Watched>,
    task: Option<Task>,
}

struct Task {
    cluster_uid: String,
    running: AbortHandle,
}

impl Drop for Task {
    /// Ends the task; its connections close with it.
    fn drop(&mut self) {
        self.running.abort();
    }
}

impl Supervisors {
    pub fn new(outside: Arc<dyn Outside>, new_machine: NewMachine, crash_points: CrashPoints) -> Self {
        Self { outside, new_machine, shared: Shared::new(crash_points), clusters: Mutex::default() }
    }

    /// Starts the cluster's task, or tells it what is new. An object that was deleted and made again under the
    /// same name is another cluster.
    pub fn set(&self, key: &ClusterKey, input: ClusterInput) {
        let mut clusters = self.clusters();
        let supervised = clusters.entry(key.clone()).or_insert_with(Supervised::new);
        let uid = input.uid.clone();
        supervised.tell(|watched| replace(&mut watched.input, Some(input)));
        if supervised.task.as_ref().is_none_or(|task| task.cluster_uid != uid) {
            supervised.task = Some(self.start(key, uid, supervised.watched.subscribe()));
        }
    }

    /// Ends the cluster's task.
    pub fn remove(&self, key: &ClusterKey) {
        self.update(key, |supervised| {
            supervised.task = None;
            supervised.tell(|watched| replace(&mut watched.input, None));
        });
    }

    /// The complete list of the pods that carry the cluster's label.
    pub fn pods(&self, key: &ClusterKey, pods: Vec<OwnedPod>) {
        self.update(key, |supervised| supervised.tell(|watched| replace(&mut watched.pods, Some(pods))));
    }

    /// The master's `EndpointSlice`; `None`: there is none.
    pub fn route(&self, key: &ClusterKey, route: Option<WatchedRoute>) {
        let route = route.map_or(Seen::Absent, Seen::Is);
        self.update(key, |supervised| supervised.tell(|watched| replace(&mut watched.route, route)));
    }

    /// The replicas' `EndpointSlice`; `None`: there is none.
    pub fn reads(&self, key: &ClusterKey, reads: Option<WatchedReads>) {
        let reads = reads.map_or(Seen::Absent, Seen::Is);
        self.update(key, |supervised| supervised.tell(|watched| replace(&mut watched.reads, reads)));
    }

    /// Ends everything in order: no new change is started, those under way may end, then all tasks end.
    /// `false`: some were still under way after that time.
    pub async fn stop(&self, within: Duration) -> bool {
        let all_ended = self.shared.stop(within).await;
        self.clusters().clear();
        all_ended
    }

    fn start(&self, key: &ClusterKey, uid: String, watched: watch::Receiver<Watched>) -> Task {
        let name: Arc<str> = format!("{}/{}", key.namespace, key.name).into();
        let (sender, inbox) = mpsc::unbounded_channel();
        let performer = Performer::new(
            name,
            self.outside.cluster(key, &uid),
            self.outside.leadership().into(),
            self.shared.clone(),
            sender,
        );
        let machine = (self.new_machine)(uid.clone());
        let running = tokio::spawn(task::run(machine, performer, self.outside.leadership(), watched, inbox))
            .abort_handle();
        Task { cluster_uid: uid, running }
    }

    /// Changes what is kept of a cluster, and forgets it when nothing is left to keep.
    fn update(&self, key: &ClusterKey, change: impl FnOnce(&mut Supervised)) {
        let mut clusters = self.clusters();
        let supervised = clusters.entry(key.clone()).or_insert_with(Supervised::new);
        change(supervised);
        if supervised.is_void() {
            clusters.remove(key);
        }
    }

    fn clusters(&self) -> MutexGuard<'_, HashMap<ClusterKey, Supervised>> {
        // Nothing under the lock can panic half-way.
        self.clusters.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Supervised {
    fn new() -> Self {
        Self { watched: watch::Sender::new(Watched::default()), task: None }
    }

    /// Wakes the task only when something is new.
    fn tell(&self, change: impl FnOnce(&mut Watched) -> bool) {
        self.watched.send_if_modified(change);
    }

    /// No task, no pods, no slices.
    fn is_void(&self) -> bool {
        let watched = self.watched.borrow();
        self.task.is_none()
            && watched.pods.as_ref().is_none_or(Vec::is_empty)
            && !matches!(watched.route, Seen::Is(_))
            && !matches!(watched.reads, Seen::Is(_))
    }
}

fn replace<T: PartialEq>(kept: &mut T, new: T) -> bool {
    let changed = *kept != new;
    *kept = new;
    changed
}
