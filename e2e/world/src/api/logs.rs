//! What pods have printed, also those that are gone.

use anyhow::{Context, Result};

use crate::paths;

/// The logs of one container of all pods that had this name, oldest first.
pub fn logs(namespace: &str, pod: &str, container: &str) -> Result<Vec<String>> {
    let directory = paths::state("pod-logs");
    let mut found = Vec::new();
    let prefix = format!("{namespace}_{pod}_");
    for entry in std::fs::read_dir(&directory).with_context(|| format!("list {}", directory.display()))? {
        let entry = entry.context("list logs")?;
        if !entry.file_name().to_string_lossy().starts_with(&prefix) {
            continue;
        }
        let file = entry.path().join(format!("{container}.log"));
        // A pod that has not started yet has no log.
        if let (Ok(bytes), Ok(metadata)) = (std::fs::read(&file), std::fs::metadata(&file)) {
            let born = metadata.created().or_else(|_| metadata.modified()).ok();
            found.push((born, String::from_utf8_lossy(&bytes).into_owned()));
        }
    }
    found.sort();
    Ok(found.into_iter().map(|(_, text)| text).collect())
}
