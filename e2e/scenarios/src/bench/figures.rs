//! Durations and counts as tables.

use std::time::Duration;

/// Head of a table of [`row`]s.
pub const HEAD: &str = "| | median | p90 | p99 | max |\n| --- | ---: | ---: | ---: | ---: |\n";

/// Milliseconds of these durations.
pub fn row(what: &str, durations: &[Duration]) -> String {
    let mut sorted = durations.to_vec();
    sorted.sort();
    let at = |share: f64| percentile(&sorted, share).map_or_else(|| "-".into(), milliseconds);
    format!("| {what} | {} | {} | {} | {} |\n", at(0.5), at(0.9), at(0.99), at(1.0))
}

/// The smallest of these sorted values that is not exceeded by this share of them.
pub fn percentile(sorted: &[Duration], share: f64) -> Option<Duration> {
    #[expect(
        clippy::cast_precision_loss,
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a handful of values"
    )]
    let rank = (sorted.len() as f64 * share).ceil() as usize;
    sorted.get(rank.max(1) - 1).copied()
}

pub fn milliseconds(duration: Duration) -> String {
    format!("{:.1} ms", duration.as_secs_f64() * 1000.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_values_that_were_measured() {
        let sorted: Vec<_> = (1..=50).map(Duration::from_millis).collect();
        assert_eq!(percentile(&sorted, 0.5), Some(Duration::from_millis(25)));
        assert_eq!(percentile(&sorted, 0.9), Some(Duration::from_millis(45)));
        assert_eq!(percentile(&sorted, 0.99), Some(Duration::from_millis(50)));
        assert_eq!(percentile(&sorted, 1.0), Some(Duration::from_millis(50)));
        assert_eq!(percentile(&[], 0.5), None);
    }

    #[test]
    fn a_row_does_not_depend_on_the_order() {
        let row =
            row("gap", &[Duration::from_millis(3), Duration::from_micros(1250), Duration::from_millis(2)]);
        assert_eq!(row, "| gap | 2.0 ms | 3.0 ms | 3.0 ms | 3.0 ms |\n");
    }
}
