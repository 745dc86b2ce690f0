//! A scripted API server for tests: answers by a closure, and remembers what it was asked.

use std::sync::{Arc, Mutex};

use http::{Request, Response};
use kube::Client;
use kube::client::Body;
use serde_json::{Value, json};

/// One request as the server saw it.
#[derive(Clone, Debug)]
pub struct Asked {
    /// Method and path.
    pub line: String,
    pub query: String,
    pub body: Value,
}

/// What the server says to a request.
pub enum Answer {
    Body(u16, Value),
    Text(u16, &'static str),
    /// Nothing, ever.
    Silence,
}

impl Answer {
    pub fn missing(resource: &str, name: &str) -> Self {
        Self::refused(404, "NotFound", resource, name)
    }

    pub fn conflict(resource: &str, name: &str) -> Self {
        Self::refused(409, "Conflict", resource, name)
    }

    /// What a kube-apiserver answers when a `test` of a JSON Patch does not hold.
    pub fn failed_test() -> Self {
        Self::Body(
            422,
            json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "code": 422,
                "message": "the server rejected our request due to an error in our request",
                "reason": "Invalid", "details": {}}),
        )
    }

    pub fn refused(code: u16, reason: &str, resource: &str, name: &str) -> Self {
        Self::Body(
            code,
            json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": code, "reason": reason,
                "message": format!("{resource} {name}: {reason}"),
                "details": {"name": name, "kind": resource}}),
        )
    }
}

pub struct Server {
    pub client: Client,
    asked: Arc<Mutex<Vec<Asked>>>,
}

impl Server {
    pub fn start(mut script: impl FnMut(&Asked) -> Answer + Send + 'static) -> Self {
        let (mock, mut handle) = tower_test::mock::pair::<Request<Body>, Response<Body>>();
        let asked = Arc::new(Mutex::new(Vec::new()));
        let book = asked.clone();
        tokio::spawn(async move {
            let mut unanswered = Vec::new();
            while let Some((request, reply)) = handle.next_request().await {
                let (parts, body) = request.into_parts();
                let bytes = body.collect_bytes().await.unwrap();
                let asked = Asked {
                    line: format!("{} {}", parts.method, parts.uri.path()),
                    query: parts.uri.query().unwrap_or_default().into(),
                    body: serde_json::from_slice(&bytes).unwrap_or(Value::Null),
                };
                let answer = script(&asked);
                book.lock().unwrap().push(asked);
                let (code, text) = match answer {
                    Answer::Body(code, body) => (code, body.to_string()),
                    Answer::Text(code, text) => (code, text.into()),
                    Answer::Silence => {
                        unanswered.push(reply);
                        continue;
                    }
                };
                let body = Body::from(text.into_bytes());
                reply.send_response(Response::builder().status(code).body(body).unwrap());
            }
        });
        Self { client: Client::new(mock, "default"), asked }
    }

    pub fn requests(&self) -> Vec<Asked> {
        self.asked.lock().unwrap().clone()
    }

    pub fn lines(&self) -> Vec<String> {
        self.requests().into_iter().map(|asked| asked.line).collect()
    }
}
