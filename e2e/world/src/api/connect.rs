//! Clients of the world's API server.

use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};
use tokio::time::{sleep, timeout};

/// How long one look at a starting API server may take, and the pause between two.
const LOOK: Duration = Duration::from_secs(2);
const PAUSE: Duration = Duration::from_millis(25);

/// A client with the identity of a kubeconfig file.
pub async fn connect(kubeconfig: &Path) -> Result<Client> {
    // Another crate of the test may bring a second provider, and then rustls
    // would not choose. A provider that is there already does as well.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let file = Kubeconfig::read_from(kubeconfig)
        .with_context(|| format!("read the kubeconfig {}", kubeconfig.display()))?;
    let mut config = Config::from_custom_kubeconfig(file, &KubeConfigOptions::default())
        .await
        .with_context(|| format!("use the kubeconfig {}", kubeconfig.display()))?;
    config.connect_timeout = Some(Duration::from_secs(5));
    Client::try_from(config).context("make a Kubernetes client")
}

/// Waits until the API server calls itself ready. The caller holds the deadline.
pub async fn api_ready(client: &Client) {
    while !matches!(timeout(LOOK, readyz(client)).await, Ok(Ok(()))) {
        sleep(PAUSE).await;
    }
}

async fn readyz(client: &Client) -> Result<()> {
    let request = http::Request::get("/readyz").body(Vec::new())?;
    client.request_text(request).await?;
    Ok(())
}
