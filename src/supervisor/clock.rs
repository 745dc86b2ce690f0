//! The only file that reads clocks. Everything else gets time by the door.

use std::time::Duration;

use k8s_openapi::jiff::Timestamp;
use nix::time::{ClockId, clock_gettime};

use crate::core::facts::{Mono, Now};

/// Now, on both clocks.
pub fn now() -> Now {
    Now { mono: mono(), wall: Timestamp::now() }
}

/// `CLOCK_BOOTTIME`: counts while the host is suspended, so that a lease cannot outlive its holder's sleep.
pub fn mono() -> Mono {
    // It fails only for a clock that the kernel does not have; Linux has this one since 2.6.39.
    clock_gettime(ClockId::CLOCK_BOOTTIME).map_or(Duration::ZERO, Duration::from)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_clock_runs_and_never_backwards() {
        let before = mono();
        let spent = (0..1_000_000_u64).fold(0, u64::wrapping_add);
        assert!(before > Duration::ZERO && mono() > before, "{spent}");
    }
}
