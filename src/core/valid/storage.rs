//! Volumes and what is written to them. Pure.

use super::Refusal;
use crate::api::RedisClusterSpec;
use crate::api::spec::Persistence;
use crate::api::storage::{Retain, Storage};

/// A volume for each pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ValidStorage {
    /// Bytes, in the API server's own spelling.
    pub size: String,
    /// `None`: the default class.
    pub class: Option<String>,
    pub retain: Retain,
}

/// Size, class and fate of the volumes.
pub fn storage(storage: &Storage) -> Result<ValidStorage, Refusal> {
    let size = storage.size.units().filter(|bytes| *bytes > 0).and_then(|_| storage.size.canonical());
    Ok(ValidStorage {
        size: size.ok_or_else(|| Refusal::StorageSize(storage.size.0.clone()))?,
        class: storage.storage_class_name.clone(),
        retain: storage.retain,
    })
}

/// Who asks for volumes wants the data to be on them.
pub fn persistence(spec: &RedisClusterSpec) -> Result<Persistence, Refusal> {
    match (spec.persistence, &spec.storage) {
        (Some(Persistence::None), Some(_)) => Err(Refusal::StorageWithoutPersistence),
        (Some(persistence), _) => Ok(persistence),
        (None, Some(_)) => Ok(Persistence::Aof),
        (None, None) => Ok(Persistence::None),
    }
}
