//! ConfigMap `<name>-config`: the boot file. Pure.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::ConfigMap;

use super::boot_file::BOOT_FILE;
use super::metadata;
use crate::api::names;
use crate::core::valid::ValidCluster;

/// Builds it around the boot file.
pub fn build(cluster: &ValidCluster, boot_file: String) -> ConfigMap {
    ConfigMap {
        metadata: metadata(cluster, names::config_map(&cluster.name)),
        data: Some(BTreeMap::from([(BOOT_FILE.to_owned(), boot_file)])),
        ..ConfigMap::default()
    }
}
