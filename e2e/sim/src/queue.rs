//! What is going to happen, in order. Quiet time costs nothing: the clock jumps to the next entry.

use std::cmp::Ordering;
use std::collections::BinaryHeap;

use crate::time::Time;

#[derive(Debug)]
struct Entry<T> {
    at: Time,
    /// What was put in first happens first.
    sequence: u64,
    what: T,
}

impl<T> PartialEq for Entry<T> {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl<T> Eq for Entry<T> {}

impl<T> PartialOrd for Entry<T> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl<T> Ord for Entry<T> {
    /// The earliest is the greatest.
    fn cmp(&self, other: &Self) -> Ordering {
        (other.at, other.sequence).cmp(&(self.at, self.sequence))
    }
}

/// The queue of a world.
#[derive(Debug)]
pub struct Queue<T> {
    heap: BinaryHeap<Entry<T>>,
    sequence: u64,
}

impl<T> Default for Queue<T> {
    fn default() -> Self {
        Self { heap: BinaryHeap::new(), sequence: 0 }
    }
}

impl<T> Queue<T> {
    pub fn push(&mut self, at: Time, what: T) {
        self.sequence += 1;
        self.heap.push(Entry { at, sequence: self.sequence, what });
    }

    /// When the next thing happens.
    pub fn next_at(&self) -> Option<Time> {
        self.heap.peek().map(|entry| entry.at)
    }

    pub fn pop(&mut self) -> Option<(Time, T)> {
        self.heap.pop().map(|entry| (entry.at, entry.what))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn earlier_comes_first_and_ties_keep_their_order() {
        let mut queue = Queue::default();
        for (at, what) in [(5, 'c'), (1, 'a'), (5, 'd'), (2, 'b')] {
            queue.push(at, what);
        }
        let order: Vec<char> = std::iter::from_fn(|| queue.pop().map(|(_, what)| what)).collect();
        assert_eq!(order, ['a', 'b', 'c', 'd']);
    }
}
