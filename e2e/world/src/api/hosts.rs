//! Hosts: networks of their own for programs that a test runs, so that a cut can
//! tell one program from another. They reach pods, Services and the API server.

use anyhow::{Context, Result, bail};

use super::World;
use crate::inside::network;
use crate::program;

/// More than any test starts; the number is the last byte of the address.
const MAX_HOSTS: u8 = 250;

/// An address of its own. It stays until the world ends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Host {
    pub address: String,
    pub(super) namespace: String,
}

impl World {
    /// Makes a host; start programs on it with [`super::Process::spawn_on`].
    pub async fn host(&self) -> Result<Host> {
        for number in 1..=MAX_HOSTS {
            let (namespace, address) = (format!("host-{number}"), format!("10.200.1.{number}"));
            // Taking the name is what makes the number ours among all tests.
            if crate::paths::node_namespace(&namespace).exists()
                || program::run("ip", &["netns", "add", &namespace], "").await.is_err()
            {
                continue;
            }
            network::host(&namespace, &format!("h{number}"), &address)
                .await
                .with_context(|| format!("set up the network of {namespace}"))?;
            return Ok(Host { address, namespace });
        }
        bail!("the world has {MAX_HOSTS} hosts already")
    }
}
