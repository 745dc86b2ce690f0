//! The HTTPS endpoint of a kubelet, as far as `kubectl logs` needs it.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result};
use axum::Router;
use axum::body::Body;
use axum::extract::{Path, RawQuery};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use axum::serve::Listener;
use futures::{StreamExt, stream};
use rustls::ServerConfig;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::{sleep, timeout};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

use super::log_reader::{Run, Wanted};
use crate::paths;

/// Where the API server looks for it, by the node's status.
pub const PORT: u16 = 10250;

const HANDSHAKE: Duration = Duration::from_secs(2);
const PAUSE: Duration = Duration::from_millis(100);

/// Serves until the process ends.
pub async fn serve() -> Result<()> {
    let address = SocketAddr::from((Ipv4Addr::UNSPECIFIED, PORT));
    let tcp = TcpListener::bind(address).await.with_context(|| format!("listen on {address}"))?;
    let routes = Router::new().route("/containerLogs/{namespace}/{pod}/{container}", get(logs));
    axum::serve(Tls { tcp, acceptor: acceptor()? }, routes).await.context("serve what a kubelet serves")
}

async fn logs(
    Path((namespace, pod, container)): Path<(String, String, String)>,
    RawQuery(query): RawQuery,
) -> Response {
    match answer(&namespace, &pod, &container, &query.unwrap_or_default()) {
        Ok(body) => body.into_response(),
        Err(error) => (StatusCode::BAD_REQUEST, format!("{error:#}")).into_response(),
    }
}

fn answer(namespace: &str, pod: &str, container: &str, query: &str) -> Result<Body> {
    let wanted = Wanted::parse(query)?;
    let run = Run::find(namespace, pod, container, &wanted)?;
    let (text, end) = run.text(&wanted)?;
    if !wanted.follow {
        return Ok(Body::from(text));
    }
    let later = run.follow(end);
    Ok(Body::from_stream(stream::iter([Ok(text)]).chain(later)))
}

/// The API server does not ask whose the certificate is, so its own will do.
fn acceptor() -> Result<TlsAcceptor> {
    let (certificate, key) = (paths::pki("apiserver.crt"), paths::pki("apiserver.key"));
    let certificate = CertificateDer::from_pem_file(&certificate)
        .with_context(|| format!("read {}", certificate.display()))?;
    let key = PrivateKeyDer::from_pem_file(&key).with_context(|| format!("read {}", key.display()))?;
    let config = ServerConfig::builder().with_no_client_auth().with_single_cert(vec![certificate], key);
    Ok(TlsAcceptor::from(Arc::new(config.context("use the API server's certificate")?)))
}

struct Tls {
    tcp: TcpListener,
    acceptor: TlsAcceptor,
}

impl Listener for Tls {
    type Io = TlsStream<TcpStream>;
    type Addr = SocketAddr;

    async fn accept(&mut self) -> (Self::Io, Self::Addr) {
        loop {
            let Ok((stream, address)) = self.tcp.accept().await else {
                // Out of file descriptors, for instance: others may become free.
                sleep(PAUSE).await;
                continue;
            };
            if let Ok(Ok(stream)) = timeout(HANDSHAKE, self.acceptor.accept(stream)).await {
                return (stream, address);
            }
        }
    }

    fn local_addr(&self) -> std::io::Result<Self::Addr> {
        self.tcp.local_addr()
    }
}
