//! Broken networks: cut links and nodes that are off.
//!
//! Each cut is a file, and the rules of all network namespaces are written anew
//! from the files: so tests in several processes do not disturb each other. A
//! cut drops packets silently and without state, as a real partition does.

use std::fmt::Write as _;
use std::fs::{self, File};
use std::time::Duration;

use anyhow::{Context, Result};
use futures::future::try_join_all;
use tokio::time::sleep;

use super::World;
use crate::addresses::NodeNumber;
use crate::inside::network::{link_down, link_up};
use crate::{paths, program};

/// Before kube-proxy's masquerading and after its choice of a pod, so that the
/// addresses are those of pods also where a Service was dialled.
const CHAINS: &str = "\
add table inet cuts
add chain inet cuts dropped
add chain inet cuts forwarded { type filter hook forward priority -10; }
add chain inet cuts received { type filter hook input priority -10; }
add chain inet cuts sent { type filter hook output priority -10; }
flush table inet cuts
add rule inet cuts forwarded jump dropped
add rule inet cuts received jump dropped
add rule inet cuts sent jump dropped
";

impl World {
    /// Cuts the link between two addresses or ranges, in both directions.
    pub async fn cut(&self, a: &str, b: &str) -> Result<()> {
        change(|| write(a, b).and_then(|()| write(b, a))).await.with_context(|| format!("cut {a} and {b}"))
    }

    /// Drops what `from` sends to `to`; the other direction stays.
    pub async fn cut_one_way(&self, from: &str, to: &str) -> Result<()> {
        change(|| write(from, to)).await.with_context(|| format!("cut {from} to {to}"))
    }

    /// Heals what these two were cut by, in both directions.
    pub async fn heal(&self, a: &str, b: &str) -> Result<()> {
        change(|| remove(a, b).and_then(|()| remove(b, a))).await.with_context(|| format!("heal {a} and {b}"))
    }

    /// Heals all cuts of all tests.
    pub async fn heal_all(&self) -> Result<()> {
        change(|| pairs()?.iter().try_for_each(|(from, to)| remove(from, to))).await.context("heal all cuts")
    }

    /// Takes a node off the network; what runs on it runs on.
    pub async fn node_off(&self, node: &str) -> Result<()> {
        link_down(number(node)?).await.with_context(|| format!("take {node} off the network"))
    }

    pub async fn node_on(&self, node: &str) -> Result<()> {
        link_up(number(node)?).await.with_context(|| format!("put {node} back on the network"))
    }

    /// The range of a node's pods, to cut whole nodes from each other.
    pub fn pod_range(&self, node: &str) -> Result<String> {
        Ok(number(node)?.pod_cidr())
    }
}

fn number(node: &str) -> Result<NodeNumber> {
    NodeNumber::parse(node).with_context(|| format!("{node} is no node"))
}

/// Changes the files and then all rules, alone.
async fn change(files: impl FnOnce() -> Result<()>) -> Result<()> {
    let lock = File::create(paths::cuts().join(".lock")).context("open the lock of the cuts")?;
    // Not a blocking lock: its holder may be another task of this thread.
    while lock.try_lock().is_err() {
        sleep(Duration::from_millis(5)).await;
    }
    files()?;
    let mut script = CHAINS.to_owned();
    for (from, to) in pairs()? {
        // Writing to a string cannot fail.
        let _ = writeln!(script, "add rule inet cuts dropped ip saddr {from} ip daddr {to} drop");
    }
    let outer = program::run("nft", &["-f", "-"], &script);
    let namespaces = namespaces()?;
    let inner = namespaces.iter().map(|namespace| {
        let script = &script;
        async move { program::run("ip", &["netns", "exec", namespace, "nft", "-f", "-"], script).await }
    });
    tokio::try_join!(outer, try_join_all(inner))?;
    Ok(())
}

/// Of all nodes and hosts.
fn namespaces() -> Result<Vec<String>> {
    let mut names = Vec::new();
    for entry in fs::read_dir("/run/netns").context("list the network namespaces")? {
        let entry = entry.context("list the network namespaces")?;
        names.push(entry.file_name().to_string_lossy().into_owned());
    }
    Ok(names)
}

/// A range's slash cannot be in a file's name.
fn file(from: &str, to: &str) -> std::path::PathBuf {
    paths::cuts().join(format!("{from}_{to}").replace('/', "+"))
}

fn write(from: &str, to: &str) -> Result<()> {
    fs::write(file(from, to), "").context("note a cut")
}

fn remove(from: &str, to: &str) -> Result<()> {
    match fs::remove_file(file(from, to)) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(error).context("forget a cut"),
        _ => Ok(()),
    }
}

fn pairs() -> Result<Vec<(String, String)>> {
    let mut pairs = Vec::new();
    for entry in fs::read_dir(paths::cuts()).context("list the cuts")? {
        let name = entry.context("list the cuts")?.file_name().to_string_lossy().replace('+', "/");
        pairs.extend(name.split_once('_').map(|(from, to)| (from.to_owned(), to.to_owned())));
    }
    Ok(pairs)
}
