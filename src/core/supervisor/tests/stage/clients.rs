//! Clients write, and servers take their writes or not.

use std::sync::Arc;

use super::{LEASE, Node, Stage};
use crate::core::facts::Role;

impl Stage {
    pub fn write(&mut self, count: u64) {
        let Some(index) = self.nodes.iter().position(|node| node.up && node.role == Role::Master) else {
            return;
        };
        self.nodes[index].keys += count;
        self.nodes[index].offset += i64::try_from(count).unwrap();
    }

    /// Clients write wherever a server lets them.
    pub fn write_everywhere(&mut self) {
        for index in 0..self.nodes.len() {
            if self.accepts(index) {
                self.next_write += 1;
                let node = &mut self.nodes[index];
                Arc::make_mut(&mut node.writes).insert(self.next_write);
                node.keys += 1;
                node.offset += 1;
            }
        }
    }

    /// How many writes clients have made.
    pub fn written(&self) -> u64 {
        self.next_write
    }

    /// Does this server take writes now?
    pub fn accepts(&self, index: usize) -> bool {
        let node = &self.nodes[index];
        let lease = node.quorum == 0 || self.now < node.acknowledged + LEASE;
        node.up && !node.frozen && node.role == Role::Master && lease
    }

    pub(super) fn good_replicas(&self, node: &Node) -> usize {
        let ip = node.ip.to_string();
        let good = |other: &&Node| {
            let streams = other.up && !other.frozen && other.link_up && other.master.0 == ip;
            streams && !self.is_cut(&other.name, &node.name)
        };
        self.nodes.iter().filter(good).count()
    }
}
