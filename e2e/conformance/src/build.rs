//! One server build: where its program is, and what it is.

use std::path::PathBuf;
use std::process::Command;
use std::sync::Arc;

use anyhow::{Context, Result, bail};

/// Family and version, as the program tells them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Build {
    /// What to start.
    pub program: Arc<PathBuf>,
    pub valkey: bool,
    /// Of the program itself. Valkey also tells a `redis_version` in INFO, 7.2 at all of its own.
    pub version: (u32, u32),
    full: String,
}

impl Build {
    /// Asks the program for its version.
    pub fn at(program: PathBuf) -> Result<Self> {
        let said = Command::new(&program)
            .arg("--version")
            .output()
            .with_context(|| program.display().to_string())?;
        let said = String::from_utf8_lossy(&said.stdout).into_owned();
        let Some(full) = said.split_whitespace().find_map(|word| word.strip_prefix("v=")) else {
            bail!("{} tells no version: {said:?}", program.display())
        };
        let mut numbers = full.split('.').map(|number| number.parse().unwrap_or(0));
        Ok(Self {
            program: Arc::new(program),
            valkey: said.starts_with("Valkey"),
            version: (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0)),
            full: full.to_owned(),
        })
    }

    /// For tables: `Redis 7.0.15`.
    pub fn name(&self) -> String {
        format!("{} {}", if self.valkey { "Valkey" } else { "Redis" }, self.full)
    }

    /// A Redis before 7.0.
    pub fn is_redis_6(&self) -> bool {
        !self.valkey && self.version < (7, 0)
    }
}
