//! The two clients of the API server: a patient one for watches, an impatient one for actions.

use std::time::Duration;

use kube::client::ClientBuilder;
use kube::{Client, Config};

use super::Error;
use super::count::{CountLayer, Observer};

/// Both clients, built from one configuration.
#[derive(Clone)]
pub struct Clients {
    /// For watches and the controller: retries refused requests by itself.
    pub patient: Client,
    /// For the lease, the status, the route and live reads: says at once when something is wrong.
    pub impatient: Client,
}

impl Clients {
    /// Uses the service account inside a cluster, the kubeconfig outside. `observer` hears of each request.
    pub async fn infer(observer: Observer) -> Result<(Self, Config), Error> {
        let config = Config::infer().await.map_err(|error| setup(kube::Error::InferConfig(error)))?;
        Ok((Self::new(&config, &observer)?, config))
    }

    /// Builds both from a given configuration.
    pub fn new(config: &Config, observer: &Observer) -> Result<Self, Error> {
        let build = |config: Config| {
            let builder = ClientBuilder::try_from(config).map_err(setup)?;
            Ok(builder.with_layer(&CountLayer::new(observer.clone())).build())
        };
        Ok(Self { patient: build(config.clone())?, impatient: build(impatient(config.clone()))? })
    }
}

/// kube's defaults would retry for minutes and wait 30 s for a connection. An action is better off with
/// an early "unknown".
fn impatient(mut config: Config) -> Config {
    config.connect_timeout = Some(Duration::from_secs(1));
    config.read_timeout = Some(Duration::from_secs(5));
    config.write_timeout = Some(Duration::from_secs(5));
    // Without this the time a pooled connection sat idle counts against the read timeout.
    config.reset_reader_on_write = true;
    config.default_retry = false;
    config
}

fn setup(source: kube::Error) -> Error {
    Error::Client { source: Box::new(source) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn actions_neither_retry_nor_wait_long() {
        let config = impatient(Config::new(http::Uri::from_static("https://127.0.0.1:6443")));
        assert!(!config.default_retry);
        assert_eq!(config.connect_timeout, Some(Duration::from_secs(1)));
        assert_eq!(config.read_timeout, Some(Duration::from_secs(5)));
    }

    #[tokio::test]
    async fn both_clients_are_built_from_one_configuration() {
        let _ = rustls::crypto::ring::default_provider().install_default();
        let config = Config::new(http::Uri::from_static("https://127.0.0.1:6443"));
        let observer: Observer = std::sync::Arc::new(|_, _| {});
        assert!(Clients::new(&config, &observer).is_ok());
    }
}
