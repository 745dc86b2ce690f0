//! Faults of the control plane.

use std::time::Duration;

use anyhow::{Context, Result};
use tokio::time::timeout;

use super::{World, api_ready};
use crate::inside::control::{Act, ask};

const API: &str = "kube-apiserver";
const DEADLINE: Duration = Duration::from_secs(60);

impl World {
    /// Kills the API server.
    pub async fn stop_api(&self) -> Result<()> {
        ask(Act::Stop, API).await
    }

    /// Starts the API server again and waits until it is ready.
    pub async fn start_api(&self) -> Result<()> {
        ask(Act::Start, API).await?;
        timeout(DEADLINE, api_ready(&self.client)).await.context("wait for the API server")
    }

    /// Freezes the API server: connections stay open and nothing answers.
    pub async fn freeze_api(&self) -> Result<()> {
        ask(Act::Freeze, API).await
    }

    pub async fn thaw_api(&self) -> Result<()> {
        ask(Act::Thaw, API).await
    }

    /// Kills any component: `etcd`, `kube-controller-manager`, `kube-scheduler`,
    /// `kube-proxy-node-1`, `kube-proxy-outer`, `node-agent-node-1` and so on.
    pub async fn stop_component(&self, name: &str) -> Result<()> {
        ask(Act::Stop, name).await
    }

    pub async fn start_component(&self, name: &str) -> Result<()> {
        ask(Act::Start, name).await
    }

    pub async fn freeze_component(&self, name: &str) -> Result<()> {
        ask(Act::Freeze, name).await
    }

    pub async fn thaw_component(&self, name: &str) -> Result<()> {
        ask(Act::Thaw, name).await
    }
}
