//! Makes one object equal to what is wanted: the only place of the controller that writes.
//!
//! Each write asks for leadership first, has a deadline, and names the uid of the object it means. An
//! object that is not controlled by this very `RedisCluster` is never touched.

use std::fmt::Debug;
use std::future::Future;
use std::time::Duration;

use k8s_openapi::NamespaceResourceScope;
use kube::api::{DeleteParams, Patch, PatchParams, Preconditions};
use kube::{Api, Resource, ResourceExt};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use tracing::info;

use super::{Context, diff};
use crate::api::names;

/// Longest wait for one call to the API server.
const CALL_DEADLINE: Duration = Duration::from_secs(5);

/// Something the controller tried and could not do.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("cannot {act} {object}: {source}")]
    Call { act: &'static str, object: String, source: Box<kube::Error> },
    #[error("cannot {act} {object}: no answer from the API server within {CALL_DEADLINE:?}")]
    Deadline { act: &'static str, object: String },
    #[error("cannot {act} {object}: {reason}")]
    Defect { act: &'static str, object: String, reason: String },
    #[error("cannot generate a password: the system has no randomness ({0})")]
    Randomness(String),
}

impl Error {
    /// One CamelCase word for conditions and metrics.
    pub fn reason(&self) -> &'static str {
        match self {
            Self::Call { .. } => "ApiCallFailed",
            Self::Deadline { .. } => "ApiServerSilent",
            Self::Defect { .. } => "ObjectNotUsable",
            Self::Randomness(_) => "NoRandomness",
        }
    }
}

/// How an object stands after the attempt to make it equal.
#[derive(Clone, Debug, PartialEq)]
pub enum Standing<K> {
    /// It is as wanted.
    Equal(Box<K>),
    /// Somebody else's object has the name; it was not touched. The text says whose it is.
    Foreign(String),
    /// Not done: this operator does not lead (any more), or the old object is still going away.
    Waiting,
}

impl<K> Standing<K> {
    pub fn equal(&self) -> Option<&K> {
        match self {
            Self::Equal(object) => Some(object),
            Self::Foreign(_) | Self::Waiting => None,
        }
    }
}

/// Kinds that the controller makes.
pub trait Kind:
    Resource<DynamicType = (), Scope = NamespaceResourceScope>
    + Clone
    + Debug
    + Serialize
    + DeserializeOwned
    + Send
    + Sync
    + 'static
{
}
impl<K> Kind for K where
    K: Resource<DynamicType = (), Scope = NamespaceResourceScope>
        + Clone
        + Debug
        + Serialize
        + DeserializeOwned
        + Send
        + Sync
        + 'static
{
}

/// Sends nothing when the cached object already equals `wanted`.
pub async fn converge<K: Kind>(
    ctx: &Context,
    owner_uid: &str,
    wanted: K,
    cached: Option<&K>,
) -> Result<Standing<K>, Error> {
    let name = wanted.name_any();
    let api: Api<K> = namespaced(ctx, &wanted);
    let mut body = as_json(&wanted, "read back", &name)?;
    diff::seal(&mut body);
    // A live object without our label is in no cache, but may be there.
    let found = match cached {
        Some(_) => None,
        None if !ctx.leadership.is_leader() => return Ok(Standing::Waiting),
        None => get_opt(&api, &name).await?,
    };
    let live = cached.or(found.as_ref());
    let params = PatchParams::apply(names::MANAGER);
    let params = match live {
        // Nothing to overrule: whoever creates the object in this moment keeps it.
        None => params,
        Some(live) if !is_controlled_by(live, owner_uid) => return Ok(Standing::Foreign(owner_of(live))),
        Some(live) if live.meta().deletion_timestamp.is_some() => return Ok(Standing::Waiting),
        Some(live) if diff::is_within(&body, &as_json(live, "read", &name)?) => {
            return Ok(Standing::Equal(Box::new(live.clone())));
        }
        Some(live) => {
            if let Some(meta) = body.get_mut("metadata").and_then(Value::as_object_mut) {
                meta.insert("uid".to_owned(), Value::from(live.uid().unwrap_or_default()));
            }
            params.force()
        }
    };
    if !ctx.leadership.is_leader() {
        return Ok(Standing::Waiting);
    }
    let patch = Patch::Apply(&body);
    let applied = within_deadline("apply", title::<K>(&name), api.patch(&name, &params, &patch)).await?;
    let created = live.is_none();
    info!(kind = %K::kind(&()), namespace = wanted.namespace(), name, created, "object made equal to the spec");
    Ok(Standing::Equal(Box::new(applied)))
}

/// Deletes an object of ours that is not wanted any more.
pub async fn delete_orphan<K: Kind>(ctx: &Context, orphan: &K) -> Result<(), Error> {
    if !ctx.leadership.is_leader() || orphan.meta().deletion_timestamp.is_some() {
        return Ok(());
    }
    let name = orphan.name_any();
    let api: Api<K> = namespaced(ctx, orphan);
    let params = DeleteParams {
        preconditions: Some(Preconditions { uid: orphan.uid(), ..Preconditions::default() }),
        ..DeleteParams::default()
    };
    match within_deadline("delete", title::<K>(&name), api.delete(&name, &params)).await {
        Ok(_) => info!(kind = %K::kind(&()), name, "object deleted: nothing needs it any more"),
        Err(Error::Call { source, .. }) if is_status(&source, 404) => {}
        Err(error) => return Err(error),
    }
    Ok(())
}

/// One live object, if it exists.
pub async fn get_opt<K: Kind>(api: &Api<K>, name: &str) -> Result<Option<K>, Error> {
    within_deadline("read", title::<K>(name), api.get_opt(name)).await
}

/// Ends a call that takes too long, and says what it was about.
pub async fn within_deadline<T>(
    act: &'static str,
    object: String,
    call: impl Future<Output = kube::Result<T>>,
) -> Result<T, Error> {
    match tokio::time::timeout(CALL_DEADLINE, call).await {
        Ok(Ok(value)) => Ok(value),
        Ok(Err(source)) => Err(Error::Call { act, object, source: Box::new(source) }),
        Err(_) => Err(Error::Deadline { act, object }),
    }
}

/// Whether the API server answered with this HTTP status.
pub fn is_status(error: &kube::Error, code: u16) -> bool {
    matches!(error, kube::Error::Api(status) if status.code == code)
}

/// Whether the object belongs to the `RedisCluster` with that uid.
pub fn is_controlled_by<K: Resource>(object: &K, owner_uid: &str) -> bool {
    object
        .meta()
        .owner_references
        .iter()
        .flatten()
        .any(|owner| owner.controller == Some(true) && owner.uid == owner_uid)
}

fn owner_of<K: Resource<DynamicType = ()>>(object: &K) -> String {
    let owner = object.meta().owner_references.iter().flatten().find(|owner| owner.controller == Some(true));
    let title = title::<K>(object.meta().name.as_deref().unwrap_or_default());
    match owner {
        Some(owner) => format!("{title} belongs to {} {}", owner.kind, owner.name),
        None => format!("{title} was not made by this operator"),
    }
}

fn namespaced<K: Kind>(ctx: &Context, object: &K) -> Api<K> {
    Api::namespaced(ctx.client.clone(), &object.namespace().unwrap_or_default())
}

fn title<K: Resource<DynamicType = ()>>(name: &str) -> String {
    format!("{} {name}", K::kind(&()))
}

fn as_json<K: Kind>(object: &K, act: &'static str, name: &str) -> Result<Value, Error> {
    serde_json::to_value(object).map_err(|error| Error::Defect {
        act,
        object: title::<K>(name),
        reason: error.to_string(),
    })
}
