//! The claims for volumes, which the StatefulSet makes, and what becomes of them. Pure.

use std::collections::BTreeMap;

use k8s_openapi::api::apps::v1::StatefulSetPersistentVolumeClaimRetentionPolicy;
use k8s_openapi::api::core::v1::{
    PersistentVolumeClaim, PersistentVolumeClaimSpec, VolumeResourceRequirements,
};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use super::selector_labels;
use crate::api::names;
use crate::api::storage::Retain;
use crate::core::valid::ValidStorage;

/// Claim template of the cluster of this name. It can never be changed, so it holds nothing that might have to.
pub fn template(cluster: &str, storage: &ValidStorage) -> PersistentVolumeClaim {
    PersistentVolumeClaim {
        metadata: ObjectMeta {
            name: Some(names::DATA_VOLUME.to_owned()),
            labels: Some(selector_labels(cluster)),
            ..ObjectMeta::default()
        },
        spec: Some(PersistentVolumeClaimSpec {
            access_modes: Some(vec!["ReadWriteOnce".to_owned()]),
            storage_class_name: storage.class.clone(),
            resources: Some(VolumeResourceRequirements {
                requests: Some(BTreeMap::from([("storage".to_owned(), Quantity(storage.size.clone()))])),
                ..VolumeResourceRequirements::default()
            }),
            ..PersistentVolumeClaimSpec::default()
        }),
        ..PersistentVolumeClaim::default()
    }
}

/// The same for pods that go by scaling in and for all of them when the object is deleted.
pub fn retention(retain: Retain) -> StatefulSetPersistentVolumeClaimRetentionPolicy {
    let policy = match retain {
        Retain::Retain => "Retain",
        Retain::Delete => "Delete",
    };
    StatefulSetPersistentVolumeClaimRetentionPolicy {
        when_deleted: Some(policy.to_owned()),
        when_scaled: Some(policy.to_owned()),
    }
}
