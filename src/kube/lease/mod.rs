//! Leader election: at most one operator acts at a time. Not a fence: that is the order of each plan.
//!
//! Own code, since the crates that exist take a lease over by force and trust other machines' clocks.

pub mod elector;
pub mod evaluate;

use std::fmt::Write as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use k8s_openapi::api::coordination::v1::Lease;
use kube::{Api, Client};
use tokio::sync::watch;

pub use elector::Elector;

use super::{Error, answer};
use crate::core::facts::{Mono, Now};

/// Where the time comes from: `mono` must count suspension.
pub type Clock = fn() -> Now;

/// Which lease, and who wants it.
#[derive(Clone, Debug)]
pub struct Candidacy {
    /// Namespace of the release.
    pub namespace: String,
    /// Named after the release.
    pub lease: String,
    /// Name of this operator's pod; a unique part is added.
    pub pod: String,
}

/// What this operator is at the moment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Standing {
    /// It holds the lease. Only [`Leadership::term`] says whether it still may act.
    Leading { term: String },
    /// It does not lead, and has not read that another one does: the API server may be away.
    Unsure,
    /// Another one holds the lease.
    Following { holder: String },
    /// It released the lease and will not try again.
    Released,
}

/// The door through which everybody asks "may I act?".
#[derive(Clone)]
pub struct Leadership {
    api: Api<Lease>,
    lease: String,
    me: String,
    clock: Clock,
    standing: watch::Receiver<Standing>,
    valid_until: ValidUntil,
    stop: watch::Sender<bool>,
    hand_over: watch::Sender<()>,
}

impl Leadership {
    /// Prepares the election. Nothing happens until [`Elector::run`] is awaited, once.
    pub fn new(client: &Client, candidacy: &Candidacy, clock: Clock) -> Result<(Self, Elector), Error> {
        let api: Api<Lease> = Api::namespaced(client.clone(), &candidacy.namespace);
        let me = format!("{}_{}", candidacy.pod, unique()?);
        let (stop, stopping) = watch::channel(false);
        let (hand_over, handing_over) = watch::channel(());
        let (publish, standing) = watch::channel(Standing::Unsure);
        let valid_until = ValidUntil::default();
        let elector = Elector::new(
            api.clone(),
            candidacy,
            me.clone(),
            clock,
            elector::Doors { publish, valid_until: valid_until.clone(), stopping, handing_over },
        );
        let lease = candidacy.lease.clone();
        Ok((Self { api, lease, me, clock, standing, valid_until, stop, hand_over }, elector))
    }

    /// The term in which this operator may act now. `None` as soon as its last renewal is too old, also
    /// when the machine slept and nobody has noticed yet. Ask before each effect.
    pub fn term(&self) -> Option<String> {
        match &*self.standing.borrow() {
            Standing::Leading { term } if (self.clock)().mono < self.valid_until.get() => Some(term.clone()),
            _ => None,
        }
    }

    /// Whether this operator may act now.
    pub fn is_leader(&self) -> bool {
        self.term().is_some()
    }

    /// What this operator is, as published last.
    pub fn standing(&self) -> Standing {
        self.standing.borrow().clone()
    }

    /// Waits until the standing is another one than at the last call.
    pub async fn changed(&mut self) {
        if self.standing.changed().await.is_err() {
            // The election is over: nothing changes any more.
            std::future::pending::<()>().await;
        }
    }

    /// Reads the lease from the API server's quorum: is it still ours, in the term we act in?
    pub async fn held_live(&self) -> Result<bool, Error> {
        let Some(term) = self.term() else { return Ok(false) };
        let act = format!("reading Lease {}/{}", self.api.namespace().unwrap_or_default(), self.lease);
        let Some(lease) = answer::read_opt(act, self.api.get(&self.lease)).await? else { return Ok(false) };
        let spec = lease.spec.unwrap_or_default();
        let shown = term_id(&spec.holder_identity.unwrap_or_default(), spec.lease_transitions.unwrap_or(0));
        Ok(shown == term && self.term().as_deref() == Some(term.as_str()))
    }

    /// Gives the lease back, so that the next one need not wait for its end. Call it when no effect is
    /// under way any more. Returns when it is given back, or could not be in time.
    pub async fn release(&self) {
        self.stop.send_replace(true);
        let mut standing = self.standing.clone();
        let given_back = standing.wait_for(|standing| *standing == Standing::Released);
        let _ = tokio::time::timeout(super::DEADLINE * 2, given_back).await;
    }

    /// Gives the lease back once and stands back for a moment, so that another operator can take it. When nobody does,
    /// this one takes it again.
    pub fn hand_over(&self) {
        self.hand_over.send_replace(());
    }

    /// Name under which this operator holds the lease.
    pub fn identity(&self) -> &str {
        &self.me
    }
}

/// A term is one acquisition by one process. The uuid in the holder's name tells processes apart, the
/// count of transitions the acquisitions of one process.
fn term_id(holder: &str, transitions: i32) -> String {
    format!("{holder}.{transitions}")
}

/// Random UUID (version 4) in its usual form.
fn unique() -> Result<String, Error> {
    let mut bytes = [0_u8; 16];
    getrandom::fill(&mut bytes).map_err(Error::Identity)?;
    let mut text = String::with_capacity(36);
    for (position, byte) in bytes.into_iter().enumerate() {
        let byte = match position {
            6 => (byte & 0x0f) | 0x40,
            8 => (byte & 0x3f) | 0x80,
            _ => byte,
        };
        if matches!(position, 4 | 6 | 8 | 10) {
            text.push('-');
        }
        let _ = write!(text, "{byte:02x}");
    }
    Ok(text)
}

/// End of the time in which the holder may act. It moves with each renewal, which wakes nobody.
#[derive(Clone, Debug, Default)]
struct ValidUntil(Arc<AtomicU64>);

impl ValidUntil {
    fn get(&self) -> Mono {
        Duration::from_micros(self.0.load(Ordering::Acquire))
    }

    fn set(&self, until: Mono) {
        self.0.store(u64::try_from(until.as_micros()).unwrap_or(u64::MAX), Ordering::Release);
    }
}

#[cfg(test)]
mod tests;
