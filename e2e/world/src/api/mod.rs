//! What tests use inside a world.

mod account;
mod apply;
mod audit;
mod connect;
mod hosts;
mod images;
mod links;
mod logs;
mod namespaces;
mod plane;
mod pods;
mod process;
mod turn;
mod wait;

use std::sync::Arc;

use anyhow::{Context, Result, bail};
use kube::Client;

pub use audit::{AuditEvent, audit_position, audit_since};
pub use connect::{api_ready, connect};
pub use hosts::Host;
pub use images::{add_image, has_image};
pub use logs::logs;
pub use nix::sys::signal::Signal;
pub use plane::SlowApi;
pub use pods::{PodHandle, is_ready};
pub use process::Process;
pub use wait::wait_for;

use self::turn::{Kind, Turn};
use crate::paths;

/// The world around this process, shared with other tests or for itself alone.
#[derive(Clone)]
pub struct World {
    client: Client,
    _turn: Arc<Turn>,
}

impl World {
    /// Enters the world that this process runs in, together with other tests.
    pub async fn enter() -> Result<Self> {
        Self::enter_as(Kind::Shared).await
    }

    /// Enters it alone: for faults of nodes and of the control plane, and for
    /// measuring. Waits until the others have dropped their `World`.
    pub async fn enter_alone() -> Result<Self> {
        Self::enter_as(Kind::Alone).await
    }

    async fn enter_as(kind: Kind) -> Result<Self> {
        if std::env::var_os("WORLD").is_none() || !paths::control_socket().exists() {
            bail!(
                "this test needs a world around it: start it with `world run -- TEST` \
                 (for instance `cargo test --no-run && world run -- cargo test --offline`)"
            );
        }
        let turn = Turn::take(kind).await?;
        let client = connect(&paths::pki("admin.kubeconfig")).await.context("enter the world")?;
        Ok(Self { client, _turn: Arc::new(turn) })
    }

    /// A client with all rights.
    pub fn client(&self) -> Client {
        self.client.clone()
    }
}
