//! Virtual time: microseconds since the start of a world.

use std::time::Duration;

/// A moment, or a span.
pub type Time = u64;

pub const MS: Time = 1_000;
pub const SECOND: Time = 1_000_000;

/// For the door of the supervisor.
pub fn duration(time: Time) -> Duration {
    Duration::from_micros(time)
}

/// From the supervisor's door.
pub fn micros(duration: Duration) -> Time {
    Time::try_from(duration.as_micros()).unwrap_or(Time::MAX)
}

/// `hh:mm:ss.mmm`
pub fn clock(time: Time) -> String {
    let (ms, s) = (time / MS % 1000, time / SECOND);
    format!("{:02}:{:02}:{:02}.{ms:03}", s / 3600, s / 60 % 60, s % 60)
}

/// Whole seconds, as servers count in INFO.
pub fn seconds(span: Time) -> i64 {
    i64::try_from(span / SECOND).unwrap_or(i64::MAX)
}
