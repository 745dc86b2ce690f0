//! A judge who asks only the servers, never the operator: their logs and their INFO.

use std::collections::BTreeMap;

use anyhow::{Context, Result};
use world::{PodHandle, logs};

use crate::cluster::Cluster;

/// A server writes one of these when it becomes master: Redis, and Valkey.
const PROMOTED: [&str; 2] = ["MASTER MODE enabled", "PRIMARY MODE enabled"];
/// A replica writes one of these when it throws its data away and takes all of its master's.
const FULL_RESYNC: [&str; 2] = ["Full resync from master", "Full resync from primary"];
/// A replica writes this with the history it knows and the first byte it lacks.
const WANTS: &str = "Trying a partial resynchronization (request ";

/// What the servers had said before a fault.
#[derive(Clone, Debug)]
pub struct Before {
    /// Length of each pod's log.
    said: BTreeMap<String, usize>,
    /// Full resyncs that each server has given since it was started.
    given: BTreeMap<String, u64>,
}

/// What they said about it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Verdict {
    pub promotions: usize,
    /// Survivors that took a full resync.
    pub resynced: Vec<String>,
    /// Full resyncs that the new master gave. The pod of the old one may need one.
    pub given: u64,
    /// Survivors that had received more than the new master, by the offsets.
    pub ahead: Vec<String>,
}

impl Verdict {
    /// One promotion, of the survivor with the most data, and nobody but the restarted pod synced in full.
    pub fn is_clean(&self) -> bool {
        self.promotions == 1 && self.resynced.is_empty() && self.given <= 1 && self.ahead.is_empty()
    }
}

impl Before {
    pub async fn read(cluster: &Cluster) -> Result<Self> {
        let mut before = Self { said: BTreeMap::new(), given: BTreeMap::new() };
        for pod in cluster.pods().await? {
            before.said.insert(pod.name.clone(), said(cluster, &pod.name)?.len());
            before.given.insert(pod.name.clone(), given(cluster, &pod).await?);
        }
        Ok(before)
    }

    /// Of a cluster whose master was `old` and is `new`, in sync again.
    pub async fn judge(&self, cluster: &Cluster, old: &PodHandle, new: &PodHandle) -> Result<Verdict> {
        let mut verdict = Verdict::default();
        let promoted_at: i64 = number(cluster, new, "second_repl_offset").await?;
        for pod in cluster.pods().await? {
            let said = self.said_since(cluster, &pod.name)?;
            verdict.promotions += promotions(&said);
            if pod.name == new.name || pod.name == old.name {
                continue;
            }
            if FULL_RESYNC.iter().any(|words| said.contains(words)) {
                verdict.resynced.push(pod.name.clone());
            }
            if said.lines().filter_map(wanted).any(|offset| offset > promoted_at) {
                verdict.ahead.push(pod.name.clone());
            }
        }
        // Counted by the process: it must be the one that was there before.
        let before = self.given.get(&new.name).copied().unwrap_or_default();
        verdict.given = given(cluster, new).await?.checked_sub(before).with_context(|| {
            format!("the server of {} was started again: its counts say nothing", new.name)
        })?;
        Ok(verdict)
    }

    fn said_since(&self, cluster: &Cluster, pod: &str) -> Result<String> {
        let before = self.said.get(pod).copied().unwrap_or_default();
        Ok(said(cluster, pod)?.get(before..).unwrap_or_default().to_owned())
    }
}

/// Number of promotions that a server's log tells of.
pub fn promotions(log: &str) -> usize {
    log.lines().filter(|line| PROMOTED.iter().any(|words| line.contains(words))).count()
}

fn said(cluster: &Cluster, pod: &str) -> Result<String> {
    Ok(logs(&cluster.namespace, pod, "redis")?.concat())
}

async fn given(cluster: &Cluster, pod: &PodHandle) -> Result<u64> {
    number(cluster, pod, "sync_full").await
}

async fn number<T>(cluster: &Cluster, pod: &PodHandle, field: &str) -> Result<T>
where
    T: std::str::FromStr<Err: std::error::Error + Send + Sync + 'static>,
{
    let value = cluster.info(&pod.ip, field).await?;
    value.parse().with_context(|| format!("{field} of {} is {value:?}", pod.name))
}

/// The offset in `... (request <replication id>:<offset>).`
fn wanted(line: &str) -> Option<i64> {
    let (_, request) = line.split_once(WANTS)?;
    let (_, offset) = request.split_once(':')?;
    offset.split_once(')')?.0.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_byte_that_a_replica_lacks_is_read_from_its_log() {
        let line = "1:S 30 Nov 2026 18:00:00.000 * Trying a partial resynchronization (request \
                    0123456789abcdef0123456789abcdef01234567:4711).";
        assert_eq!(wanted(line), Some(4711));
        assert_eq!(wanted("1:S * Partial resynchronization not possible (no cached master)"), None);
        assert_eq!(wanted("1:S * Trying a partial resynchronization (request ?:-1)."), Some(-1));
    }

    #[test]
    fn a_promotion_is_read_from_the_log_of_redis_and_of_valkey() {
        let log = "7:M 30 Nov 2026 18:00:00.000 * MASTER MODE enabled (user request from 'id=3')\n\
                   7:M 30 Nov 2026 18:00:00.000 * Discarding previously cached master state.\n\
                   7:M 30 Nov 2026 18:00:01.000 * PRIMARY MODE enabled (user request from 'id=4')\n";
        assert_eq!(promotions(log), 2);
    }

    #[test]
    fn two_promotions_a_resynced_or_a_better_survivor_are_no_clean_failover() {
        let clean = Verdict { promotions: 1, given: 1, ..Verdict::default() };
        assert!(clean.is_clean());
        let pod = || vec!["cache-1".to_owned()];
        for bad in [
            Verdict { promotions: 2, ..clean.clone() },
            Verdict { promotions: 0, ..clean.clone() },
            Verdict { given: 2, ..clean.clone() },
            Verdict { resynced: pod(), ..clean.clone() },
            Verdict { ahead: pod(), ..clean.clone() },
        ] {
            assert!(!bad.is_clean(), "{bad:?}");
        }
    }
}
