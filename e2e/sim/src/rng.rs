//! All dice of a world come from its seed.
//!
//! Own code, ten lines of SplitMix64: a kept seed must mean the same world for ever, whatever a crate's next version does.

use crate::time::Time;

/// A stream of dice.
#[derive(Clone, Debug)]
pub struct Rng(u64);

impl Rng {
    /// `stream` separates the dice of different parts: taking a fault out of a schedule must not draw another schedule.
    pub fn new(seed: u64, stream: u64) -> Self {
        let mut rng = Self(seed ^ stream.wrapping_mul(0xA076_1D64_78BD_642F));
        rng.next();
        Self(rng.next() ^ seed.rotate_left(32))
    }

    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    /// 0 to `bound - 1`.
    pub fn below(&mut self, bound: u64) -> u64 {
        // The bias is far below what a search could notice.
        self.next() % bound.max(1)
    }

    pub fn index(&mut self, length: usize) -> usize {
        usize::try_from(self.below(length as u64)).unwrap_or(0)
    }

    /// True in so many of a hundred cases.
    pub fn percent(&mut self, percent: u64) -> bool {
        self.below(100) < percent
    }

    /// `low` to `high`, both included.
    pub fn range(&mut self, low: u64, high: u64) -> u64 {
        low + self.below(high.saturating_sub(low) + 1)
    }

    /// Short spans are as likely as long ones: the size is drawn first.
    pub fn span(&mut self, low: Time, high: Time) -> Time {
        let (mut scale, mut sizes) = (low.max(1), 0);
        while scale < high {
            scale *= 2;
            sizes += 1;
        }
        let size = self.below(sizes + 1);
        let top = low.max(1).saturating_mul(1 << size).min(high);
        self.range(low.max(top / 2).min(top), top)
    }

    pub fn pick<T: Copy>(&mut self, choices: &[T]) -> T {
        choices[self.index(choices.len())]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_seed_gives_the_same_dice_and_another_stream_gives_others() {
        let draw = |seed, stream| {
            let mut rng = Rng::new(seed, stream);
            (0..8).map(|_| rng.next()).collect::<Vec<_>>()
        };
        assert_eq!(draw(7, 1), draw(7, 1));
        assert_ne!(draw(7, 1), draw(7, 2));
        assert_ne!(draw(7, 1), draw(8, 1));
    }

    #[test]
    fn spans_stay_within_their_bounds() {
        let mut rng = Rng::new(1, 1);
        for _ in 0..1000 {
            assert!((50..=7000).contains(&rng.span(50, 7000)));
            assert!((3..=4).contains(&rng.range(3, 4)));
        }
    }
}
