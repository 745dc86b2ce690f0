//! What a world is made of; handed as JSON from one re-execution to the next.

use std::collections::BTreeMap;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Options {
    pub nodes: u8,
    /// The control plane's binary.
    pub kubebox: PathBuf,
    /// Server builds: image name to directory.
    pub images: BTreeMap<String, PathBuf>,
    /// Let kube-proxy write its rules at once instead of once a second.
    pub fast_proxy: bool,
    /// Where logs are copied when the command has ended.
    pub keep_logs: Option<PathBuf>,
    /// The command and its arguments.
    pub command: Vec<String>,
}
