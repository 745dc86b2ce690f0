//! The connections of one cluster, by pod. Starts attempts and keeps what came of them.

use std::collections::HashMap;
use std::net::SocketAddr;

use tokio::task::AbortHandle;

use crate::core::event::{DialOutcome, Event};
use crate::core::facts::LinkId;
use crate::redis::link::{Dialler, Link, Report, Target};

/// At most one attempt or connection a pod.
#[derive(Debug, Default)]
pub struct Links {
    by_uid: HashMap<String, Slot>,
    used: LinkId,
}

#[derive(Debug)]
struct Slot {
    id: LinkId,
    address: SocketAddr,
    /// `None` while the attempt is under way.
    open: Option<Link>,
    /// The lease term in which the operator's other connections to this server were cut.
    cut_in: Option<String>,
    serving: AbortHandle,
}

impl Drop for Slot {
    /// Closes the connection.
    fn drop(&mut self) {
        self.serving.abort();
    }
}

impl Links {
    /// An identity that was not used before.
    pub fn next_id(&mut self) -> LinkId {
        self.used += 1;
        self.used
    }

    /// Is an attempt to this very address under way? It then goes on, however silent: its answer may be the
    /// one that matters.
    pub fn is_dialling(&self, uid: &str, address: SocketAddr) -> bool {
        self.by_uid.get(uid).is_some_and(|slot| slot.open.is_none() && slot.address == address)
    }

    /// Starts an attempt; whatever there was to this pod is closed. `term`: the one we lead in.
    pub fn dial(
        &mut self,
        uid: String,
        term: Option<String>,
        dialler: Dialler,
        target: Target,
        report: impl Fn(Report) + Send + Sync + 'static,
    ) {
        let (id, address) = (target.link, target.address);
        let serving = tokio::spawn(dialler.run(target, report)).abort_handle();
        self.by_uid.insert(uid, Slot { id, address, open: None, cut_in: term, serving });
    }

    /// Closes the connection to this pod, and gives up an attempt.
    pub fn hang_up(&mut self, uid: &str) {
        self.by_uid.remove(uid);
    }

    /// The open connection with this identity.
    pub fn get(&self, uid: &str, id: LinkId) -> Option<&Link> {
        self.by_uid.get(uid).filter(|slot| slot.id == id).and_then(|slot| slot.open.as_ref())
    }

    /// The same, for a command. `true`: it is the first one to this server in this term, so the operator's other
    /// connections must be cut before it. A connection that was opened in an earlier term may not have been
    /// the only one since.
    pub fn claim(&mut self, uid: &str, id: LinkId, term: Option<String>) -> Option<(Link, bool)> {
        let slot = self.by_uid.get_mut(uid).filter(|slot| slot.id == id)?;
        let first = term.is_some() && slot.cut_in != term;
        if first {
            slot.cut_in = term;
        }
        slot.open.clone().map(|link| (link, first))
    }

    /// Keeps what an attempt or connection reports. `None`: we hung up on it meanwhile.
    pub fn heard(&mut self, uid: String, id: LinkId, report: Report) -> Option<Event> {
        let slot = self.by_uid.get_mut(&uid).filter(|slot| slot.id == id)?;
        Some(match report {
            Report::Opened { link, asked_at, info } => {
                slot.open = Some(link);
                Event::Dialed { uid, outcome: DialOutcome::Connected { link: id, asked_at, info } }
            }
            Report::Failed(outcome) => {
                if outcome != DialOutcome::Silent {
                    self.by_uid.remove(&uid);
                }
                Event::Dialed { uid, outcome }
            }
            Report::Lost => {
                self.by_uid.remove(&uid);
                Event::LinkLost { uid, link: id }
            }
        })
    }
}
