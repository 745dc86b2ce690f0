//! The API server's audit log: who asked what, and when.

use std::fs::File;
use std::io::{Read, Seek, SeekFrom};

use anyhow::{Context, Result};
use k8s_openapi::jiff::Timestamp;
use serde::Deserialize;

use crate::paths;

/// A request to the API server at one stage. A request other than a watch has
/// just the stage `ResponseComplete`; a watch has `ResponseStarted` before.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AuditEvent {
    pub user: String,
    pub verb: String,
    pub resource: String,
    pub subresource: String,
    pub namespace: String,
    pub name: String,
    pub stage: String,
    /// The answer's HTTP code; 0 before there is one.
    pub code: i32,
    /// When the request came in.
    pub received: Timestamp,
    /// When it reached this stage.
    pub timestamp: Timestamp,
}

/// The end of the log now: requests made from here on come after it.
pub fn audit_position() -> Result<u64> {
    Ok(std::fs::metadata(paths::audit_log()).context("look at the audit log")?.len())
}

/// The events after a position.
pub fn audit_since(position: u64) -> Result<Vec<AuditEvent>> {
    let mut log = File::open(paths::audit_log()).context("open the audit log")?;
    log.seek(SeekFrom::Start(position)).context("go to the position in the audit log")?;
    let mut text = String::new();
    log.read_to_string(&mut text).context("read the audit log")?;
    // The last line may be half written.
    let whole = text.rsplit_once('\n').map_or("", |(whole, _)| whole);
    whole.lines().map(parse).collect()
}

fn parse(line: &str) -> Result<AuditEvent> {
    let raw: Raw = serde_json::from_str(line).with_context(|| format!("understand the audit line {line}"))?;
    let object = raw.object_ref.unwrap_or_default();
    Ok(AuditEvent {
        user: raw.user.username,
        verb: raw.verb,
        resource: object.resource,
        subresource: object.subresource,
        namespace: object.namespace,
        name: object.name,
        stage: raw.stage,
        code: raw.response_status.map_or(0, |status| status.code),
        received: raw.request_received_timestamp,
        timestamp: raw.stage_timestamp,
    })
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Raw {
    user: User,
    verb: String,
    stage: String,
    object_ref: Option<ObjectRef>,
    response_status: Option<ResponseStatus>,
    request_received_timestamp: Timestamp,
    stage_timestamp: Timestamp,
}

#[derive(Deserialize)]
struct User {
    username: String,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct ObjectRef {
    resource: String,
    subresource: String,
    namespace: String,
    name: String,
}

#[derive(Deserialize)]
struct ResponseStatus {
    #[serde(default)]
    code: i32,
}
