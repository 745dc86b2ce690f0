//! All data sets that ever were, as one tree of writes.
//!
//! A server's data is a *head*: the last write that it took in, and with it all before. Whether a server holds a write
//! is then whether the write is an ancestor of the head, which jump pointers answer in a few steps.

/// A data set, by its last write. 0 is the empty one.
pub type Head = u32;

/// Number of a client's write.
pub type WriteId = u32;

#[derive(Clone, Debug)]
struct Entry {
    parent: Head,
    jump: Head,
    depth: u32,
    keys: u32,
}

/// The tree.
#[derive(Clone, Debug)]
pub struct History {
    entries: Vec<Entry>,
}

impl Default for History {
    fn default() -> Self {
        Self { entries: vec![Entry { parent: 0, jump: 0, depth: 0, keys: 0 }] }
    }
}

impl History {
    fn entry(&self, head: Head) -> &Entry {
        &self.entries[head as usize]
    }

    /// One more key.
    pub fn write(&mut self, parent: Head) -> Head {
        let keys = self.entry(parent).keys + 1;
        self.push(parent, keys)
    }

    /// FLUSHALL: what was written is history, and no key is left.
    pub fn flush(&mut self, parent: Head) -> Head {
        self.push(parent, 0)
    }

    fn push(&mut self, parent: Head, keys: u32) -> Head {
        let above = self.entry(parent);
        let (a, b) = (self.entry(above.jump), self.entry(self.entry(above.jump).jump));
        // Jumps of equal length are merged into one of twice the length.
        let jump = if above.depth - a.depth == a.depth - b.depth { a.jump } else { parent };
        let depth = above.depth + 1;
        self.entries.push(Entry { parent, jump, depth, keys });
        u32::try_from(self.entries.len() - 1).unwrap_or(u32::MAX)
    }

    pub fn keys(&self, head: Head) -> u64 {
        u64::from(self.entry(head).keys)
    }

    /// Does this data set contain that one?
    pub fn holds(&self, head: Head, earlier: Head) -> bool {
        let depth = self.entry(earlier).depth;
        let mut at = head;
        while self.entry(at).depth > depth {
            let entry = self.entry(at);
            at = if self.entry(entry.jump).depth >= depth { entry.jump } else { entry.parent };
        }
        at == earlier
    }

    /// The data set without its last write.
    pub fn before(&self, head: Head) -> Head {
        self.entry(head).parent
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_head_holds_what_is_below_it_and_nothing_of_other_branches() {
        let mut history = History::default();
        let mut trunk = vec![0];
        for _ in 0..200 {
            let next = history.write(*trunk.last().unwrap());
            trunk.push(next);
        }
        let mut branch = trunk[100];
        for _ in 0..50 {
            branch = history.write(branch);
        }
        for (position, head) in trunk.iter().enumerate() {
            assert_eq!(history.holds(branch, *head), position <= 100);
            assert!(history.holds(trunk[200], *head));
        }
        assert!(!history.holds(trunk[200], branch));
        assert_eq!(history.keys(branch), 150);
        let flushed = history.flush(branch);
        assert_eq!((history.keys(flushed), history.holds(flushed, branch)), (0, true));
    }
}
