//! How long an ended container waits for its restart: as a kubelet has it.

use std::time::Duration;

const FIRST: Duration = Duration::from_secs(10);
const LONGEST: Duration = Duration::from_secs(300);
/// A run of this length wipes the past out.
const GOOD_RUN: Duration = Duration::from_secs(600);

/// The wait before the next restart; zero at first.
#[derive(Debug, Default)]
pub struct Backoff(Duration);

impl Backoff {
    /// The wait after a run of the given length.
    pub fn next(&mut self, ran: Duration) -> Duration {
        if ran >= GOOD_RUN {
            self.0 = Duration::ZERO;
        }
        let wait = self.0;
        self.0 = (wait * 2).clamp(FIRST, LONGEST);
        wait
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn at_once_then_ten_seconds_doubling_to_five_minutes() {
        let mut backoff = Backoff::default();
        let waits: Vec<_> = (0..8).map(|_| backoff.next(Duration::from_secs(1)).as_secs()).collect();
        assert_eq!(waits, [0, 10, 20, 40, 80, 160, 300, 300]);
        assert_eq!(backoff.next(GOOD_RUN).as_secs(), 0);
    }
}
