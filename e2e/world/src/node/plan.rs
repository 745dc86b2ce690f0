//! All that a container's start needs to know, written to a file by the pod
//! runner and read by the processes that make the container.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Plan {
    /// The process whose network, host name and IPC the container shares.
    pub sandbox: i32,
    /// An empty directory; the container's root is made in it.
    pub directory: PathBuf,
    pub log: PathBuf,
    /// Where the main process's number goes.
    pub pid_file: PathBuf,
    pub argv: Vec<String>,
    pub env: Vec<(String, String)>,
    pub working_directory: PathBuf,
    /// Text of /etc/hosts.
    pub hosts: String,
    pub hostname: String,
    /// A server build, to appear as `images::BUILD`.
    pub build: Option<PathBuf>,
    pub mounts: Vec<Mount>,
    /// Nothing but volumes can be written.
    pub read_only_root: bool,
}

/// A part of a volume at its place in the container.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Mount {
    pub source: PathBuf,
    pub target: PathBuf,
    pub read_only: bool,
}

impl Plan {
    pub fn write(&self, file: &Path) -> Result<()> {
        std::fs::write(file, serde_json::to_vec(self)?).with_context(|| format!("write {}", file.display()))
    }

    pub fn read(file: &Path) -> Result<Self> {
        let text = std::fs::read(file).with_context(|| format!("read {}", file.display()))?;
        serde_json::from_slice(&text).with_context(|| format!("understand {}", file.display()))
    }
}
