//! What happens to servers, pods and the network between them.

use std::net::IpAddr;
use std::sync::Arc;

use super::{Due, MS, Node, Stage};
use crate::core::event::Event;

impl Stage {
    /// The process dies without a word. Connections end, replicas notice.
    pub fn kill(&mut self, name: &str) {
        let now = self.now;
        let node = self.node(name);
        node.up = false;
        let (uid, ip) = (node.uid.clone(), node.ip);
        self.drop_replicas_of(ip, now);
        if let Some((link, _)) = self.links.remove(&uid) {
            self.later(MS, Due::Event(Event::LinkLost { uid, link }));
        }
    }

    /// The container starts again: fenced, with or without its data.
    pub fn restart(&mut self, name: &str, keep_data: bool) {
        let node = self.node(name);
        let (run, keys) = (node.run + 1, if keep_data { node.keys } else { 0 });
        *node = Node {
            run,
            keys,
            replid: format!("boot-{name}-{run}"),
            name: node.name.clone(),
            uid: node.uid.clone(),
            ip: node.ip,
            label: node.label.clone(),
            promotions: node.promotions,
            full_syncs: node.full_syncs,
            writes: if keep_data { node.writes.clone() } else { Arc::default() },
            listed: node.listed,
            cut_off: node.cut_off,
            ..Node::new(0)
        };
    }

    /// The pod object is deleted, and its process with it; a new pod with the same name takes its place.
    pub fn replace_pod(&mut self, name: &str) {
        self.kill(name);
        let node = self.node(name);
        let ordinal = node.name.chars().last().unwrap().to_digit(10).unwrap();
        let fresh = Node::new(u8::try_from(ordinal).unwrap());
        let generation = node.uid.len();
        *node = Node {
            uid: format!("{}x", node.uid),
            ip: IpAddr::from([10, 0, u8::try_from(generation).unwrap(), u8::try_from(ordinal + 1).unwrap()]),
            run: node.run + 100,
            replid: format!("boot-{name}-{}", node.run + 100),
            promotions: node.promotions,
            full_syncs: node.full_syncs,
            ..fresh
        };
        self.run(10 * MS);
        self.list_pods();
    }

    /// The two servers lose each other, and the replica of the two notices.
    pub fn cut(&mut self, one: &str, other: &str) {
        self.cuts.push((one.to_owned(), other.to_owned()));
        let now = self.now;
        for (name, peer) in [(one, other), (other, one)] {
            let peer = self.node(peer).ip.to_string();
            let node = self.node(name);
            if node.link_up && node.master.0 == peer {
                node.link_up = false;
                node.link_lost = Some(now);
            }
        }
    }

    pub(super) fn is_cut(&self, one: &str, other: &str) -> bool {
        self.cuts.iter().any(|(a, b)| (a == one && b == other) || (a == other && b == one))
    }
}
