//! The two clients of the API server: a patient one for watches, an impatient one for actions.

use std::time::Duration;

use hyper_rustls::{FixedServerNameResolver, HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::{TokioExecutor, TokioTimer};
use kube::client::{ClientBuilder, ConfigExt};
use kube::{Client, Config};
use tower::ServiceBuilder;

use super::Error;
use super::count::{CountLayer, Observer};

/// An API server that does not accept a connection within this is away.
const CONNECT: Duration = Duration::from_secs(1);
/// Rhythm of pings on the connection, and how long an answer may take: a connection that swallows requests must
/// be replaced before the lease is lost for want of a renewal.
const PING: Duration = Duration::from_secs(1);
const PONG: Duration = Duration::from_millis(1500);

/// Both clients, built from one configuration.
#[derive(Clone)]
pub struct Clients {
    /// For watches: retries refused requests by itself.
    pub patient: Client,
    /// For the lease, the status, the route, live reads and the controller's writes: says at once when something
    /// is wrong. Every caller brings a deadline.
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
        let count = CountLayer::new(observer.clone());
        let patient = ClientBuilder::try_from(config.clone()).map_err(setup)?.with_layer(&count).build();
        Ok(Self { patient, impatient: impatient(config, count).map_err(setup)? })
    }
}

/// One warm HTTP/2 connection for all requests: it is kept warm by the lease's renewals, so that a failover
/// after a quiet day does not begin with TLS handshakes, and requests side by side do not wait for more of
/// them. kube's own builder speaks HTTP/1 only, retries for minutes and waits 30 s for a connection.
fn impatient(config: &Config, count: CountLayer) -> kube::Result<Client> {
    let http = hyper_util::client::legacy::Client::builder(TokioExecutor::new())
        .timer(TokioTimer::new())
        .pool_timer(TokioTimer::new())
        .http2_keep_alive_interval(PING)
        .http2_keep_alive_timeout(PONG)
        .http2_keep_alive_while_idle(true)
        .build(connector(config)?);
    let service = ServiceBuilder::new()
        .layer(count)
        .layer(config.base_uri_layer())
        .option_layer(config.auth_layer()?)
        .layer(config.extra_headers_layer()?)
        .map_err(tower::BoxError::from)
        .service(http);
    Ok(Client::new(service, config.default_namespace.clone()))
}

fn connector(config: &Config) -> kube::Result<HttpsConnector<HttpConnector>> {
    let mut tcp = HttpConnector::new();
    tcp.enforce_http(false); // the scheme is https
    tcp.set_nodelay(true);
    tcp.set_connect_timeout(Some(CONNECT));
    let mut tls =
        HttpsConnectorBuilder::new().with_tls_config(config.rustls_client_config()?).https_or_http();
    if let Some(name) = &config.tls_server_name {
        let name = name.clone().try_into().map_err(|error| kube::Error::Service(Box::new(error)))?;
        tls = tls.with_server_name_resolver(FixedServerNameResolver::new(name));
    }
    Ok(tls.enable_all_versions().wrap_connector(tcp))
}

fn setup(source: kube::Error) -> Error {
    Error::Client { source: Box::new(source) }
}

#[cfg(test)]
mod tests {
    use tokio::io::AsyncReadExt;
    use tokio::net::TcpListener;

    use super::*;

    fn clients(port: u16) -> Clients {
        let _ = rustls::crypto::ring::default_provider().install_default();
        let config = Config::new(format!("https://127.0.0.1:{port}").parse().unwrap());
        let observer: Observer = std::sync::Arc::new(|_, _| {});
        Clients::new(&config, &observer).unwrap()
    }

    #[tokio::test]
    async fn actions_offer_http_2_and_do_not_retry() {
        let server = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let client = clients(server.local_addr().unwrap().port()).impatient;
        let ask = client.request_text(http::Request::get("/version").body(Vec::new()).unwrap());
        let hang_up = async {
            let (mut stream, _) = server.accept().await.unwrap();
            let mut hello = vec![0; 4096];
            let length = stream.read(&mut hello).await.unwrap();
            hello.truncate(length);
            hello
        };
        let (answer, hello) = tokio::join!(ask, hang_up);
        assert!(answer.is_err());
        // The protocols in the TLS greeting, each with its length before it.
        let offers = b"\x02h2\x08http/1.1";
        assert!(hello.windows(offers.len()).any(|bytes| bytes == offers));
        let again = tokio::time::timeout(Duration::from_millis(300), server.accept()).await;
        assert!(again.is_err(), "it came back");
    }

    #[tokio::test]
    async fn an_action_says_at_once_that_nothing_listens() {
        let server = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let client = clients(server.local_addr().unwrap().port()).impatient;
        drop(server);
        let ask = client.request_text(http::Request::get("/version").body(Vec::new()).unwrap());
        let answer = tokio::time::timeout(CONNECT, ask).await.unwrap();
        assert!(matches!(answer, Err(kube::Error::Service(_))));
    }
}
