//! Whose turn it is: most tests share a world, some need it for themselves.
//! File locks, so that it also holds between processes.

use std::fs::{File, TryLockError};
use std::time::Duration;

use anyhow::{Context, Result};
use tokio::time::sleep;

use crate::paths;

/// Held for as long as a test is in the world.
pub struct Turn {
    _lock: File,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    Shared,
    Alone,
}

impl Turn {
    pub async fn take(kind: Kind) -> Result<Self> {
        // Who waits to be alone holds the gate, so that no newcomer overtakes.
        let gate = open("gate.lock")?;
        take(&gate, Kind::Alone).await?;
        let lock = open("turn.lock")?;
        take(&lock, kind).await?;
        Ok(Self { _lock: lock })
    }
}

fn open(name: &str) -> Result<File> {
    let path = paths::state(name);
    File::create(&path).with_context(|| format!("open {}", path.display()))
}

/// Not a blocking lock: its holder may be another task of this thread.
async fn take(file: &File, kind: Kind) -> Result<()> {
    loop {
        let tried = if kind == Kind::Alone { file.try_lock() } else { file.try_lock_shared() };
        match tried {
            Ok(()) => return Ok(()),
            Err(TryLockError::WouldBlock) => sleep(Duration::from_millis(10)).await,
            Err(TryLockError::Error(error)) => return Err(error).context("wait for a turn in the world"),
        }
    }
}
