//! Waiting for what the world should come to.

use std::time::Duration;

use anyhow::{Result, bail};
use tokio::time::{Instant, sleep, timeout_at};

const PAUSE: Duration = Duration::from_millis(20);

/// Looks again and again until `look` returns something. An error of a look is
/// not final, since much fails while a world changes; the last one is told when
/// the time is up.
pub async fn wait_for<T>(
    what: &str,
    limit: Duration,
    mut look: impl AsyncFnMut() -> Result<Option<T>>,
) -> Result<T> {
    let deadline = Instant::now() + limit;
    let mut last = None;
    loop {
        match timeout_at(deadline, look()).await {
            Ok(Ok(Some(found))) => return Ok(found),
            Ok(Ok(None)) => last = None,
            Ok(Err(error)) => last = Some(error),
            Err(_) if last.is_none() => last = Some(anyhow::anyhow!("the last look did not return")),
            Err(_) => {}
        }
        if Instant::now() >= deadline {
            match last {
                Some(error) => bail!("waited {limit:?} for {what}; the last look failed: {error:#}"),
                None => bail!("waited {limit:?} for {what}; it did not come"),
            }
        }
        sleep(PAUSE).await;
    }
}
