//! What a watch has seen, sorted by cluster. Pure. After a list was read again, what vanished in between
//! vanishes here, too.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::mem;

use crate::supervisor::ClusterKey;

/// Namespace and name of a watched object.
type ObjectKey = (String, String);

/// A watched object, reduced to what is needed of it.
#[derive(Clone, Debug, PartialEq)]
pub struct Entry<T> {
    pub namespace: String,
    pub name: String,
    /// Name of the cluster to which it belongs, from its label.
    pub cluster: String,
    pub value: T,
}

/// Objects of all clusters.
#[derive(Debug)]
pub struct Index<T> {
    clusters: HashMap<ClusterKey, BTreeMap<String, T>>,
    /// In which cluster an object was filed: its label may change.
    homes: HashMap<ObjectKey, ClusterKey>,
    /// Objects of a list that is being read again.
    list: Vec<Entry<T>>,
}

impl<T> Default for Index<T> {
    fn default() -> Self {
        Self { clusters: HashMap::new(), homes: HashMap::new(), list: Vec::new() }
    }
}

impl<T: Clone + PartialEq> Index<T> {
    /// An object was added or changed. Returns the clusters for which anything is different now.
    pub fn apply(&mut self, entry: Entry<T>) -> BTreeSet<ClusterKey> {
        let home = ClusterKey { namespace: entry.namespace.clone(), name: entry.cluster };
        let object = (entry.namespace, entry.name);
        let mut changed = BTreeSet::new();
        if self.homes.get(&object).is_some_and(|before| *before != home) {
            changed.extend(self.delete(&object.0, &object.1));
        }
        let members = self.clusters.entry(home.clone()).or_default();
        if members.get(&object.1) != Some(&entry.value) {
            members.insert(object.1.clone(), entry.value);
            changed.insert(home.clone());
        }
        self.homes.insert(object, home);
        changed
    }

    /// An object is gone.
    pub fn delete(&mut self, namespace: &str, name: &str) -> Option<ClusterKey> {
        let home = self.homes.remove(&(namespace.to_owned(), name.to_owned()))?;
        let members = self.clusters.get_mut(&home)?;
        members.remove(name);
        if members.is_empty() {
            self.clusters.remove(&home);
        }
        Some(home)
    }

    /// The list is about to be read again.
    pub fn begin_list(&mut self) {
        self.list.clear();
    }

    /// An object of that list.
    pub fn listed(&mut self, entry: Entry<T>) {
        self.list.push(entry);
    }

    /// The list is complete. Returns the clusters for which anything is different now.
    pub fn end_list(&mut self) -> BTreeSet<ClusterKey> {
        let listed = mem::take(&mut self.list);
        let before = mem::take(self);
        for entry in listed {
            self.apply(entry);
        }
        let all = before.clusters.keys().chain(self.clusters.keys());
        all.filter(|key| before.clusters.get(key) != self.clusters.get(key)).cloned().collect()
    }

    /// All objects of one cluster, by name.
    pub fn of(&self, cluster: &ClusterKey) -> Vec<T> {
        self.clusters.get(cluster).map(|members| members.values().cloned().collect()).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(namespace: &str, name: &str, cluster: &str, value: u32) -> Entry<u32> {
        Entry { namespace: namespace.into(), name: name.into(), cluster: cluster.into(), value }
    }

    fn key(namespace: &str, name: &str) -> ClusterKey {
        ClusterKey { namespace: namespace.into(), name: name.into() }
    }

    fn list(index: &mut Index<u32>, entries: &[Entry<u32>]) -> Vec<ClusterKey> {
        index.begin_list();
        for entry in entries {
            index.listed(entry.clone());
        }
        index.end_list().into_iter().collect()
    }

    #[test]
    fn only_clusters_with_a_difference_are_named() {
        let mut index = Index::default();
        assert_eq!(list(&mut index, &[entry("shop", "cache-0", "cache", 1)]), [key("shop", "cache")]);
        assert!(index.apply(entry("shop", "cache-0", "cache", 1)).is_empty());
        assert_eq!(index.apply(entry("shop", "cache-0", "cache", 2)), [key("shop", "cache")].into());
        assert_eq!(index.apply(entry("bank", "cache-0", "cache", 3)), [key("bank", "cache")].into());
        assert_eq!(index.of(&key("shop", "cache")), [2]);
    }

    #[test]
    fn what_vanished_while_the_watch_was_down_vanishes_with_the_new_list() {
        let mut index = Index::default();
        list(
            &mut index,
            &[
                entry("shop", "cache-0", "cache", 1),
                entry("shop", "cache-1", "cache", 2),
                entry("shop", "queue-0", "queue", 3),
                entry("shop", "same-0", "same", 4),
            ],
        );
        let changed =
            list(&mut index, &[entry("shop", "cache-1", "cache", 2), entry("shop", "same-0", "same", 4)]);
        assert_eq!(changed, [key("shop", "cache"), key("shop", "queue")]);
        assert_eq!(index.of(&key("shop", "cache")), [2]);
        assert!(index.of(&key("shop", "queue")).is_empty());
    }

    #[test]
    fn a_list_that_was_broken_off_leaves_nothing_behind() {
        let mut index = Index::default();
        index.begin_list();
        index.listed(entry("shop", "ghost-0", "ghost", 1));
        assert_eq!(list(&mut index, &[entry("shop", "cache-0", "cache", 1)]), [key("shop", "cache")]);
    }

    #[test]
    fn an_object_that_changes_its_cluster_leaves_the_old_one() {
        let mut index = Index::default();
        index.apply(entry("shop", "x-0", "one", 1));
        let changed = index.apply(entry("shop", "x-0", "two", 1));
        assert_eq!(changed, [key("shop", "one"), key("shop", "two")].into());
        assert!(index.of(&key("shop", "one")).is_empty());
    }

    #[test]
    fn deleting_names_the_cluster_and_an_unknown_object_names_none() {
        let mut index = Index::default();
        index.apply(entry("shop", "cache-0", "cache", 1));
        assert_eq!(index.delete("shop", "cache-0"), Some(key("shop", "cache")));
        assert_eq!(index.delete("shop", "cache-0"), None);
    }
}
