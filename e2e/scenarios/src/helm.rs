//! Helm and kubectl as their users run them, and the repository's own chart.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use serde_json::Value;
use world::program::run_within;

/// Path of helm, given by whoever built it.
pub const BINARY: &str = "HELM_BINARY";
/// Folder of the chart.
pub const CHART: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../charts/redis-ha-operator");

/// No command here waits for pods; a busy machine gets generous room.
const DEADLINE: Duration = Duration::from_secs(60);

/// Runs helm with these arguments and returns what it printed.
pub async fn helm(args: &[&str]) -> Result<String> {
    let binary = std::env::var_os(BINARY).map(PathBuf::from).with_context(|| {
        format!("{BINARY} must name helm's binary; use `make test`, or {BINARY}=$(e2e/helm/build.sh)")
    })?;
    ensure!(binary.exists(), "{} does not exist: run e2e/helm/build.sh", binary.display());
    let binary = binary.to_str().with_context(|| format!("{BINARY} is no text"))?;
    run_within(DEADLINE, binary, args, "").await
}

/// Runs kubectl with these arguments and this input and returns what it printed.
pub async fn kubectl(args: &[&str], input: &str) -> Result<String> {
    run_within(DEADLINE, "kubectl", args, input).await
}

/// The objects that the chart renders for a release of this name with these arguments.
pub async fn rendered(release: &str, args: &[&str]) -> Result<Vec<Value>> {
    let text = helm(&[&["template", release, CHART], args].concat()).await?;
    let objects: Vec<Value> = serde_saphyr::from_multiple(&text).context("read what helm has rendered")?;
    Ok(objects.into_iter().filter(|object| !object.is_null()).collect())
}

/// The chart's own files with values, for its tests.
pub fn values_files() -> Result<Vec<PathBuf>> {
    let folder = Path::new(CHART).join("ci");
    let mut files = Vec::new();
    for entry in std::fs::read_dir(&folder).with_context(|| format!("list {}", folder.display()))? {
        files.push(entry.context("list values files")?.path());
    }
    files.sort();
    Ok(files)
}
