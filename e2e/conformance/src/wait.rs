//! Waiting for something to become true, never for a time to pass.

use std::time::Duration;

use anyhow::{Result, bail};
use tokio::time::{Instant, sleep};

/// Nothing that is waited for takes nearly as long, also on a busy machine.
pub const LONGEST: Duration = Duration::from_secs(30);

/// Asks again and again until there is an answer; gives it and the time it took.
pub async fn until<T>(what: &str, mut ask: impl AsyncFnMut() -> Result<Option<T>>) -> Result<(T, Duration)> {
    let start = Instant::now();
    loop {
        if let Some(answer) = ask().await? {
            return Ok((answer, start.elapsed()));
        }
        if start.elapsed() > LONGEST {
            bail!("not within {} s: {what}", LONGEST.as_secs());
        }
        sleep(Duration::from_millis(3)).await;
    }
}

/// For the table: `12 ms`, `3.4 s`.
pub fn shown(time: Duration) -> String {
    if time < Duration::from_secs(1) {
        format!("{} ms", time.as_millis())
    } else {
        format!("{:.1} s", time.as_secs_f64())
    }
}
