//! Hears of each request to the API server and of its end. "An idle cluster costs no request" is a promise
//! of the operator; this is where it can be read off. Changes nothing about the requests.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use http::{Method, Request, Response, Uri};
use tower::{Layer, Service};

/// One kind of request. Both fields come from closed sets, so that they can be labels.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Call {
    /// Kubernetes' own verbs.
    pub verb: &'static str,
    /// Plural resource, with its subresource; `other` for what the operator does not use.
    pub resource: &'static str,
}

/// How a request ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    Answered(u16),
    /// No connection, or it broke.
    Failed,
    /// The caller's deadline passed first.
    Abandoned,
}

impl End {
    /// Closed set, for a label.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Answered(200..=399) => "ok",
            Self::Answered(401 | 403) => "forbidden",
            Self::Answered(404) => "not_found",
            Self::Answered(409) => "conflict",
            Self::Answered(422) => "invalid",
            Self::Answered(429) => "throttled",
            Self::Answered(400..=499) => "refused",
            Self::Answered(_) => "server_error",
            Self::Failed => "failed",
            Self::Abandoned => "abandoned",
        }
    }
}

/// Told once for each request.
pub type Observer = Arc<dyn Fn(Call, End) + Send + Sync>;

/// Puts the observer around a client's service.
pub struct CountLayer {
    observer: Observer,
}

impl CountLayer {
    pub fn new(observer: Observer) -> Self {
        Self { observer }
    }
}

impl<S> Layer<S> for CountLayer {
    type Service = Count<S>;

    fn layer(&self, inner: S) -> Count<S> {
        Count { inner, observer: self.observer.clone() }
    }
}

/// The service made by [`CountLayer`].
pub struct Count<S> {
    inner: S,
    observer: Observer,
}

impl<S, B, A> Service<Request<B>> for Count<S>
where
    S: Service<Request<B>, Response = Response<A>>,
    S::Future: Send + 'static,
{
    type Response = S::Response;
    type Error = S::Error;
    type Future = Pin<Box<dyn Future<Output = Result<S::Response, S::Error>> + Send>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        let mut open = Open {
            call: call(request.method(), request.uri()),
            end: End::Abandoned,
            observer: self.observer.clone(),
        };
        let answer = self.inner.call(request);
        Box::pin(async move {
            let answer = answer.await;
            open.ended(answer.as_ref().map_or(End::Failed, |answer| End::Answered(answer.status().as_u16())));
            answer
        })
    }
}

/// A request under way. Dropping it tells the observer, so that an abandoned one counts, too.
struct Open {
    call: Call,
    end: End,
    observer: Observer,
}

impl Open {
    fn ended(&mut self, end: End) {
        self.end = end;
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        (self.observer)(self.call, self.end);
    }
}

/// Verb and resource from method and path: `/api/v1/...` or `/apis/group/version/...`.
fn call(method: &Method, uri: &Uri) -> Call {
    let mut parts = uri.path().split('/').filter(|part| !part.is_empty());
    match parts.next() {
        Some("api") => parts.next(),
        Some("apis") => parts.nth(1),
        _ => None,
    };
    let mut rest: Vec<&str> = parts.collect();
    if rest.first() == Some(&"namespaces") && rest.len() > 2 {
        rest.drain(..2);
    }
    let named = rest.get(1).is_some();
    let resource = resource(rest.first().copied(), rest.get(2).copied());
    let watch = uri.query().is_some_and(|query| query.split('&').any(|pair| pair == "watch=true"));
    let verb = match *method {
        Method::GET if watch => "watch",
        Method::GET if named => "get",
        Method::GET => "list",
        Method::POST => "create",
        Method::PUT => "update",
        Method::PATCH => "patch",
        Method::DELETE => "delete",
        _ => "other",
    };
    Call { verb, resource }
}

fn resource(resource: Option<&str>, subresource: Option<&str>) -> &'static str {
    match (resource, subresource) {
        (Some("redisclusters"), None) => "redisclusters",
        (Some("redisclusters"), Some("status")) => "redisclusters/status",
        (Some("pods"), None) => "pods",
        (Some("endpointslices"), None) => "endpointslices",
        (Some("leases"), None) => "leases",
        (Some("events"), None) => "events",
        (Some("statefulsets"), None) => "statefulsets",
        (Some("services"), None) => "services",
        (Some("configmaps"), None) => "configmaps",
        (Some("secrets"), None) => "secrets",
        (Some("poddisruptionbudgets"), None) => "poddisruptionbudgets",
        (Some("nodes"), None) => "nodes",
        _ => "other",
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use super::*;

    #[test]
    fn requests_are_named_by_verb_and_resource() {
        let table = [
            ("GET", "/api/v1/pods?watch=true&timeoutSeconds=60", "watch pods"),
            ("GET", "/api/v1/namespaces/shop/pods?limit=500", "list pods"),
            ("GET", "/api/v1/namespaces/shop/pods/cache-0", "get pods"),
            (
                "PATCH",
                "/apis/redis-ha.dev/v1alpha1/namespaces/shop/redisclusters/cache/status?",
                "patch redisclusters/status",
            ),
            ("PUT", "/apis/coordination.k8s.io/v1/namespaces/ops/leases/redis-ha", "update leases"),
            ("POST", "/apis/events.k8s.io/v1/namespaces/shop/events?", "create events"),
            ("GET", "/version", "list other"),
            ("GET", "/api/v1/namespaces/shop", "get other"),
        ];
        for (method, uri, expected) in table {
            let found = call(&method.parse().unwrap(), &uri.parse().unwrap());
            assert_eq!(format!("{} {}", found.verb, found.resource), expected, "{method} {uri}");
        }
    }

    #[tokio::test]
    async fn answered_failed_and_abandoned_requests_are_each_told_once() {
        let told = Arc::new(Mutex::new(Vec::new()));
        let sink = told.clone();
        let observer: Observer = Arc::new(move |call, end| sink.lock().unwrap().push((call.verb, end)));
        let (mock, mut server) = tower_test::mock::pair::<Request<()>, Response<()>>();
        let mut service = CountLayer::new(observer).layer(mock);
        let mut ask = |uri: &str| {
            let mut cx = Context::from_waker(std::task::Waker::noop());
            assert!(service.poll_ready(&mut cx).is_ready());
            service.call(Request::get(uri).body(()).unwrap())
        };
        let (answered, failed, abandoned) = (ask("/api/v1/pods"), ask("/api/v1/pods"), ask("/api/v1/pods"));
        let (_, reply) = server.next_request().await.unwrap();
        reply.send_response(Response::builder().status(409).body(()).unwrap());
        let (_, reply) = server.next_request().await.unwrap();
        reply.send_error("reset");
        assert!(answered.await.is_ok());
        assert!(failed.await.is_err());
        drop(abandoned);
        assert_eq!(
            *told.lock().unwrap(),
            [("list", End::Answered(409)), ("list", End::Failed), ("list", End::Abandoned)]
        );
    }
}
