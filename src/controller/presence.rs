//! Which clusters there are: hands them to the supervisors, and takes them away when they are gone. No
//! finalizer holds an object back, so its end is seen in the watch alone. Touches no API.

use kube::runtime::watcher::Event;
use tracing::info;

use super::{Guarded, Room, cluster_key};
use crate::supervisor::{ClusterInput, ClusterKey};

impl Room {
    /// Hands over, unless the object has gone meanwhile: its task must not come back to life.
    pub fn arrive(&self, key: &ClusterKey, uid: &str, input: ClusterInput) {
        let _whole = self.memory.lock();
        if self.caches.has_cluster(key, uid) {
            self.ctx.handover.set(key.clone(), input);
        }
    }

    /// The object is gone or going.
    pub fn depart(&self, key: &ClusterKey) {
        let mut clusters = self.memory.lock();
        if clusters.remove(key).is_some() {
            info!(namespace = key.namespace, cluster = key.name, "RedisCluster is gone");
        }
        self.ctx.handover.remove(key);
    }

    /// Called for each event of the watch, after the cache has taken it: no pass is started for what is gone.
    pub fn notice_departures(&self, event: &Event<Guarded>) {
        match event {
            Event::Delete(object) => {
                if let Some(key) = cluster_key(object) {
                    self.depart(&key);
                }
            }
            // A new list after a gap: whoever went during the gap is not in it.
            Event::InitDone => {
                let known: Vec<ClusterKey> = self.memory.lock().keys().cloned().collect();
                known.iter().filter(|key| !self.caches.has_key(key)).for_each(|key| self.depart(key));
            }
            Event::Apply(_) | Event::Init | Event::InitApply(_) => {}
        }
    }
}
