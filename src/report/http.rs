//! `/metrics`, `/healthz` and `/readyz`. Reads only.

use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use axum::Router;
use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use tokio::net::TcpListener;

use super::metrics::Metrics;

/// What must be true before this operator is ready. A standby is ready, too: only caches count.
#[derive(Clone, Default)]
pub struct Readiness(Vec<(&'static str, Arc<AtomicBool>)>);

impl Readiness {
    /// Adds a part that is not ready yet. Whoever fills it sets the flag.
    pub fn part(&mut self, name: &'static str) -> Arc<AtomicBool> {
        let flag = Arc::new(AtomicBool::new(false));
        self.0.push((name, flag.clone()));
        flag
    }

    /// Names of the parts that are not ready.
    pub fn missing(&self) -> Vec<&'static str> {
        self.0.iter().filter(|(_, ready)| !ready.load(Ordering::Acquire)).map(|(name, _)| *name).collect()
    }
}

/// Serves until `stop` ends.
pub async fn serve(
    listener: TcpListener,
    metrics: Metrics,
    readiness: Readiness,
    stop: impl Future<Output = ()> + Send + 'static,
) -> std::io::Result<()> {
    let routes = Router::new()
        .route("/metrics", get(scrape))
        .with_state(metrics)
        .route("/healthz", get(async || "ok\n"))
        .route("/readyz", get(ready).with_state(readiness));
    axum::serve(listener, routes).with_graceful_shutdown(stop).await
}

async fn scrape(State(metrics): State<Metrics>) -> Response {
    match metrics.render() {
        Ok((content_type, text)) => ([(header::CONTENT_TYPE, content_type)], text).into_response(),
        Err(error) => (StatusCode::INTERNAL_SERVER_ERROR, format!("{error}\n")).into_response(),
    }
}

async fn ready(State(readiness): State<Readiness>) -> Response {
    let missing = readiness.missing();
    if missing.is_empty() {
        "ok\n".into_response()
    } else {
        let text = format!("waiting for the first complete list of: {}\n", missing.join(", "));
        (StatusCode::SERVICE_UNAVAILABLE, text).into_response()
    }
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;

    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpStream;

    use super::*;

    async fn ask(address: SocketAddr, path: &str) -> String {
        let mut stream = TcpStream::connect(address).await.unwrap();
        let request = format!("GET {path} HTTP/1.1\r\nHost: test\r\nConnection: close\r\n\r\n");
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.unwrap();
        answer
    }

    #[tokio::test]
    async fn ready_means_that_every_cache_is_filled_and_healthy_does_not() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let mut readiness = Readiness::default();
        let (pods, routes) = (readiness.part("pods"), readiness.part("routes"));
        tokio::spawn(serve(listener, Metrics::new().unwrap(), readiness, std::future::pending()));
        pods.store(true, Ordering::Release);
        let answer = ask(address, "/readyz").await;
        assert!(answer.starts_with("HTTP/1.1 503") && answer.ends_with("of: routes\n"), "{answer}");
        assert!(ask(address, "/healthz").await.starts_with("HTTP/1.1 200"));
        routes.store(true, Ordering::Release);
        assert!(ask(address, "/readyz").await.starts_with("HTTP/1.1 200"));
    }

    #[tokio::test]
    async fn metrics_are_served_as_prometheus_text() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let stop = std::future::pending();
        tokio::spawn(serve(listener, Metrics::new().unwrap(), Readiness::default(), stop));
        let answer = ask(address, "/metrics").await;
        assert!(answer.contains("content-type: text/plain; version=0.0.4"), "{answer}");
        assert!(answer.contains("# HELP redis_ha_is_leader "));
    }
}
