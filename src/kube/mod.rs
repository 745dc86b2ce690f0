//! The Kubernetes room: live reads, compare-and-swap writes, the lease, and the watches that feed the
//! supervisor. Everything here has a deadline; nothing here decides.

pub mod answer;
pub mod client;
pub mod count;
pub mod index;
pub mod lease;
pub mod live;
pub mod nodes;
pub mod request;
pub mod route;
pub mod status;
pub mod watch;

#[cfg(test)]
pub(crate) mod scripted;

use std::time::Duration;

/// Deadline of one read or write. A healthy API server answers in milliseconds; after two seconds the
/// caller is better off to look again than to wait.
pub const DEADLINE: Duration = Duration::from_secs(2);

/// A read that brought nothing. Writes end in a `WriteOutcome` instead, since "unknown" matters there.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The API server refused, or could not be reached.
    #[error("{act}: {}", answer::sentence(source))]
    Refused {
        act: String,
        #[source]
        source: Box<kube::Error>,
    },
    /// No answer within [`DEADLINE`].
    #[error("{act}: the API server did not answer within {} s", DEADLINE.as_secs())]
    Silent { act: String },
    /// The pod exists but has no address (yet).
    #[error("{act}: the pod exists but has no address yet")]
    NoAddress { act: String },
    /// The connection to the API server could not be set up.
    #[error("setting up the client of the API server: {source}; check the kubeconfig or the service account")]
    Client {
        #[source]
        source: Box<kube::Error>,
    },
    /// The lease's holder needs a few random bytes at the start.
    #[error("making the identity of this operator: {0}")]
    Identity(getrandom::Error),
}

impl Error {
    /// Closed set, for metrics and Events.
    pub fn category(&self) -> &'static str {
        match self {
            Self::Refused { .. } => "refused",
            Self::Silent { .. } => "silent",
            Self::NoAddress { .. } => "no_address",
            Self::Client { .. } => "client",
            Self::Identity(_) => "identity",
        }
    }
}
