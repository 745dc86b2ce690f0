//! What the API server's answer says about a request. Pure but for the deadline around it.

use std::future::Future;

use kube::core::Status;
use tokio::time::timeout;

use super::{DEADLINE, Error};
use crate::core::event::WriteOutcome;

/// Runs one read under the deadline. `act` names the act and the object.
pub async fn read<T>(act: String, request: impl Future<Output = kube::Result<T>>) -> Result<T, Error> {
    match timeout(DEADLINE, request).await {
        Ok(Ok(value)) => Ok(value),
        Ok(Err(source)) => Err(Error::Refused { act, source: Box::new(source) }),
        Err(_) => Err(Error::Silent { act }),
    }
}

/// Like [`read`], but an object that does not exist is an answer.
pub async fn read_opt<T>(
    act: String,
    request: impl Future<Output = kube::Result<T>>,
) -> Result<Option<T>, Error> {
    match read(act, request).await {
        Ok(value) => Ok(Some(value)),
        Err(Error::Refused { source, .. }) if is_missing_object(&source) => Ok(None),
        Err(error) => Err(error),
    }
}

/// Runs one write under the deadline.
pub async fn write<T>(act: &str, request: impl Future<Output = kube::Result<T>>) -> Result<T, WriteOutcome> {
    match timeout(DEADLINE, request).await {
        Ok(Ok(value)) => Ok(value),
        Ok(Err(error)) => Err(judge(act, &error)),
        Err(_) => Err(silent(act)),
    }
}

/// The outcome of a write that had no answer in time.
pub fn silent(act: &str) -> WriteOutcome {
    WriteOutcome::Unknown(format!("{act}: the API server did not answer within {} s", DEADLINE.as_secs()))
}

/// What an error says about the write. Whatever does not prove that nothing was written is `Unknown`.
pub fn judge(act: &str, error: &kube::Error) -> WriteOutcome {
    let said = format!("{act}: {}", sentence(error));
    match error {
        kube::Error::Api(status) => match status.code {
            409 => WriteOutcome::Conflict,
            422 if is_failed_test(status) => WriteOutcome::Conflict,
            404 if is_missing_object(error) => WriteOutcome::Gone,
            // 404 without an object: the server does not serve the kind (yet), as while it starts.
            404 | 429 => WriteOutcome::Unknown(said),
            401 | 403 => {
                WriteOutcome::Denied(format!("{said}; check the role and the token of the operator"))
            }
            400..=499 => WriteOutcome::Denied(said),
            _ => WriteOutcome::Unknown(said),
        },
        // Nothing was sent, and the same request would never be sent.
        kube::Error::BuildRequest(_) => WriteOutcome::Denied(said),
        _ => WriteOutcome::Unknown(said),
    }
}

/// A `test` of a JSON Patch that does not hold and an object that the schema refuses are both 422
/// `Invalid`. The API server answers the first through `NewGenericServerResponse` (apiserver
/// `pkg/endpoints/handlers/patch.go`): no name of an object and no causes. The second, through
/// `NewInvalid`, names the object and lists a cause for each field. A webhook says that it is one.
fn is_failed_test(status: &Status) -> bool {
    let names_nothing =
        status.details.as_ref().is_none_or(|details| details.causes.is_empty() && details.name.is_empty());
    names_nothing && !status.message.starts_with("admission webhook")
}

/// "There is no such object" names the object. A plain 404 may come from a proxy, or from a server that
/// does not serve the kind yet, and must not be taken for a deletion.
fn is_missing_object(error: &kube::Error) -> bool {
    match error {
        kube::Error::Api(status) => {
            status.code == 404 && status.details.as_ref().is_some_and(|details| !details.name.is_empty())
        }
        _ => false,
    }
}

/// An error of the API client as a sentence; kube's own text prints the answer twice.
pub fn sentence(error: &kube::Error) -> String {
    match error {
        kube::Error::Api(status) => {
            format!("{} (HTTP {} {})", status.message.trim(), status.code, status.reason)
        }
        kube::Error::Service(source) => {
            format!("the API server cannot be reached: {}", chain(source.as_ref()))
        }
        other => chain(other),
    }
}

/// An error with its causes, in one line.
pub fn chain(error: &(dyn std::error::Error + 'static)) -> String {
    let mut text = error.to_string();
    let mut next = error.source();
    while let Some(cause) = next {
        let more = cause.to_string();
        if !text.contains(&more) {
            text = format!("{text}: {more}");
        }
        next = cause.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn answered(body: Value) -> kube::Error {
        let status: Status = serde_json::from_value(body).unwrap();
        kube::Error::Api(Box::new(status))
    }

    fn refused(code: u16, reason: &str) -> kube::Error {
        answered(json!({"status": "Failure", "code": code, "reason": reason, "message": "m",
            "details": {"name": "cache", "group": "redis-ha.dev", "kind": "redisclusters"}}))
    }

    fn judged(error: &kube::Error) -> &'static str {
        match judge("writing", error) {
            WriteOutcome::Written => "written",
            WriteOutcome::Conflict => "conflict",
            WriteOutcome::Gone => "gone",
            WriteOutcome::Unknown(_) => "unknown",
            WriteOutcome::Denied(_) => "denied",
            WriteOutcome::NotSent => "not sent",
        }
    }

    /// The answers are those of a kube-apiserver 1.34, shortened.
    #[test]
    fn each_answer_of_the_api_server_has_its_meaning() {
        let failed_test = answered(json!({"kind": "Status", "status": "Failure", "code": 422,
            "message": "the server rejected our request due to an error in our request",
            "reason": "Invalid", "details": {}}));
        let schema =
            answered(json!({"kind": "Status", "status": "Failure", "code": 422, "reason": "Invalid",
            "message": "RedisCluster.redis-ha.dev \"cache\" is invalid: status.epoch: Invalid value",
            "details": {"name": "cache", "group": "redis-ha.dev", "kind": "RedisCluster",
                "causes": [{"reason": "FieldValueInvalid", "message": "m", "field": "status.epoch"}]}}));
        let webhook = answered(json!({"status": "Failure", "code": 422, "reason": "Invalid",
            "message": "admission webhook \"policy.example\" denied the request: no"}));
        let no_such_kind = answered(json!({"status": "Failure", "code": 404, "reason": "NotFound",
            "message": "the server could not find the requested resource", "details": {}}));
        let table = [
            (failed_test, "conflict"),
            (schema, "denied"),
            (webhook, "denied"),
            (refused(409, "Conflict"), "conflict"),
            (refused(409, "AlreadyExists"), "conflict"),
            (refused(404, "NotFound"), "gone"),
            (no_such_kind, "unknown"),
            (refused(400, "BadRequest"), "denied"),
            (refused(401, "Unauthorized"), "denied"),
            (refused(403, "Forbidden"), "denied"),
            (refused(429, "TooManyRequests"), "unknown"),
            (refused(500, "InternalError"), "unknown"),
            (refused(503, "ServiceUnavailable"), "unknown"),
            (refused(504, "Timeout"), "unknown"),
            (kube::Error::Service("connection reset".into()), "unknown"),
        ];
        for (error, meaning) in table {
            assert_eq!(judged(&error), meaning, "{error:?}");
        }
    }

    #[test]
    fn a_refusal_names_act_object_and_remedy() {
        let outcome = judge("writing the status of shop/cache", &refused(403, "Forbidden"));
        assert_eq!(
            outcome,
            WriteOutcome::Denied(
                "writing the status of shop/cache: m (HTTP 403 Forbidden); check the role and the token of \
                 the operator"
                    .into()
            )
        );
    }

    #[tokio::test(start_paused = true)]
    async fn no_answer_within_the_deadline_is_unknown() {
        let outcome = write::<()>("writing", std::future::pending()).await;
        assert!(matches!(outcome, Err(WriteOutcome::Unknown(_))));
        let read = read::<()>("reading".into(), std::future::pending()).await;
        assert!(matches!(read, Err(Error::Silent { .. })));
    }
}
