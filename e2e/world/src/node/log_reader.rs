//! What a container has printed, run by run, as `kubectl logs` asks for it.

use std::fs::{self, File};
use std::io::{Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use futures::stream::{self, Stream};
use tokio::time::sleep;

use crate::paths;

/// How often a followed log is looked at.
const LOOK: Duration = Duration::from_millis(100);

/// Which part of a log is wanted.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Wanted {
    pub follow: bool,
    previous: bool,
    tail_lines: Option<usize>,
    limit_bytes: Option<usize>,
}

impl Wanted {
    /// Reads the query that the API server passes on.
    pub fn parse(query: &str) -> Result<Self> {
        let mut wanted = Self::default();
        for part in query.split('&').filter(|part| !part.is_empty()) {
            let (key, value) = part.split_once('=').unwrap_or((part, ""));
            let number = || value.parse().with_context(|| format!("{key}={value} is no number"));
            match key {
                "follow" => wanted.follow = value == "true",
                "previous" => wanted.previous = value == "true",
                "tailLines" => wanted.tail_lines = Some(number()?),
                "limitBytes" => wanted.limit_bytes = Some(number()?),
                _ => bail!(
                    "{key} is not supported by the pod runner: it does not know when a line was printed"
                ),
            }
        }
        Ok(wanted)
    }
}

/// Where the runs of a container begin in its log.
fn starts_file(log: &Path) -> PathBuf {
    log.with_extension("starts")
}

/// Notes that a run begins at the present end of the log.
pub fn begin(log: &Path) -> Result<()> {
    let file = starts_file(log);
    let length = fs::metadata(log).map_or(0, |metadata| metadata.len());
    let note = || writeln!(File::options().create(true).append(true).open(&file)?, "{length}");
    note().with_context(|| format!("write {}", file.display()))
}

/// One run of a container in its log.
#[derive(Debug)]
pub struct Run {
    log: PathBuf,
    /// Exists while the container runs.
    pid_file: PathBuf,
    number: usize,
    start: u64,
}

impl Run {
    /// The run that is wanted of the newest pod of that name.
    pub fn find(namespace: &str, pod: &str, container: &str, wanted: &Wanted) -> Result<Self> {
        let uid = newest(namespace, pod)?;
        let log = paths::container_log(namespace, pod, &uid, container);
        let starts = starts(&log);
        let latest = starts.len().checked_sub(1);
        let latest = latest.with_context(|| format!("{container} of {pod} has not started yet"))?;
        let number = if wanted.previous { latest.checked_sub(1) } else { Some(latest) };
        let number = number.with_context(|| format!("{container} of {pod} has no previous run"))?;
        let start = starts.get(number).copied().unwrap_or(0);
        Ok(Self { log, pid_file: paths::container_pid(&uid, container), number, start })
    }

    /// What it has printed so far, as much as is wanted; and where it ends.
    pub fn text(&self, wanted: &Wanted) -> Result<(Vec<u8>, u64)> {
        let whole = self.read(self.start)?;
        let end = self.start + u64::try_from(whole.len())?;
        let from = wanted.tail_lines.map_or(0, |lines| tail(&whole, lines));
        let part = whole.get(from..).unwrap_or_default();
        Ok((part.get(..wanted.limit_bytes.unwrap_or(usize::MAX)).unwrap_or(part).to_vec(), end))
    }

    /// What it prints from `position` on, until it ends.
    pub fn follow(self, position: u64) -> impl Stream<Item = Result<Vec<u8>>> {
        stream::try_unfold((self, position), async |(run, position)| {
            loop {
                // In this order: what was printed before the end is not missed.
                let over = !run.pid_file.exists() || starts(&run.log).len() > run.number + 1;
                let text = run.read(position)?;
                if !text.is_empty() {
                    let position = position + u64::try_from(text.len())?;
                    return Ok(Some((text, (run, position))));
                }
                if over {
                    return Ok(None);
                }
                sleep(LOOK).await;
            }
        })
    }

    /// From `position` to the end of this run.
    fn read(&self, position: u64) -> Result<Vec<u8>> {
        let end = starts(&self.log).get(self.number + 1).copied().unwrap_or(u64::MAX);
        let mut text = Vec::new();
        File::open(&self.log)
            .and_then(|mut file| {
                file.seek(SeekFrom::Start(position))?;
                file.take(end.saturating_sub(position)).read_to_end(&mut text)
            })
            .with_context(|| format!("read {}", self.log.display()))?;
        Ok(text)
    }
}

fn starts(log: &Path) -> Vec<u64> {
    // A container that has not started yet has none.
    let text = fs::read_to_string(starts_file(log)).unwrap_or_default();
    text.lines().filter_map(|line| line.parse().ok()).collect()
}

/// Where the last lines begin.
fn tail(text: &[u8], lines: usize) -> usize {
    let body = text.strip_suffix(b"\n").unwrap_or(text);
    let ends = body.iter().enumerate().rev().filter(|(_, byte)| **byte == b'\n');
    match lines.checked_sub(1) {
        None => text.len(),
        Some(before) => ends.map(|(at, _)| at + 1).nth(before).unwrap_or(0),
    }
}

/// Uid of the newest pod of that name that has run on any node.
fn newest(namespace: &str, pod: &str) -> Result<String> {
    let directory = paths::state("pod-logs");
    let prefix = format!("{namespace}_{pod}_");
    let mut found = Vec::new();
    for entry in fs::read_dir(&directory).with_context(|| format!("list {}", directory.display()))? {
        let entry = entry.context("list logs")?;
        let name = entry.file_name().to_string_lossy().into_owned();
        if let Some(uid) = name.strip_prefix(&prefix) {
            let born = entry.metadata().and_then(|metadata| metadata.created()).ok();
            found.push((born, uid.to_owned()));
        }
    }
    let newest = found.into_iter().max().with_context(|| format!("no pod {namespace}/{pod} has run here"))?;
    Ok(newest.1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_lines_are_found_with_and_without_an_end_of_line() {
        for (text, lines, from) in
            [("a\nb\nc\n", 2, 2), ("a\nb\nc", 2, 2), ("a\n", 5, 0), ("a\nb\n", 0, 4), ("", 3, 0)]
        {
            assert_eq!(tail(text.as_bytes(), lines), from, "{lines} of {text:?}");
        }
    }

    #[test]
    fn what_is_not_supported_is_refused() {
        let wanted = Wanted { follow: true, tail_lines: Some(10), ..Wanted::default() };
        assert_eq!(Wanted::parse("follow=true&tailLines=10").unwrap(), wanted);
        assert!(Wanted::parse("sinceSeconds=5").unwrap_err().to_string().contains("sinceSeconds"));
        assert!(Wanted::parse("tailLines=all").is_err());
    }
}
