//! Seeds that found something once. Each is a line of `seeds.txt`: the seed, and what it found.

/// The kept seeds.
pub fn kept() -> impl Iterator<Item = (u64, &'static str)> {
    include_str!("../seeds.txt").lines().filter_map(|line| {
        let (seed, found) = line.split_once(' ')?;
        Some((seed.parse().ok()?, found))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::run::{Options, run};
    use crate::story::Detail;

    #[test]
    fn what_was_found_once_stays_mended() {
        for (seed, found) in kept() {
            let outcome = run(seed, &Options::default(), Detail::Nothing);
            assert_eq!(outcome.violation, None, "seed {seed} is back: {found}");
        }
    }

    #[test]
    fn the_same_seed_gives_the_same_world_bit_for_bit() {
        let options = Options { length: 5 * 60 * crate::time::SECOND, ..Options::default() };
        for seed in [3, 4] {
            let (one, other) = (run(seed, &options, Detail::Nothing), run(seed, &options, Detail::Story));
            assert_eq!(one.hash, other.hash, "being told as a story changes nothing");
            assert_eq!(one.counts.events, other.counts.events);
            assert_eq!(run(seed, &options, Detail::Story).story, other.story);
        }
        assert_ne!(run(3, &options, Detail::Nothing).hash, run(4, &options, Detail::Nothing).hash);
    }
}
