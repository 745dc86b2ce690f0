//! The headless Service, which gives pods their names, and the two that clients use: for the master and for reads. Pure.

use k8s_openapi::api::core::v1::{Service, ServicePort, ServiceSpec};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;

use super::{metadata, selector_labels};
use crate::api::names;
use crate::api::service::{ExternalTrafficPolicy, ServiceOptions};
use crate::core::facts::REDIS_PORT;
use crate::core::valid::ValidCluster;

/// Service `<name>-headless`. Pods that are not ready are in it too: their names must resolve while they load.
pub fn headless(cluster: &ValidCluster) -> Service {
    service(
        cluster,
        names::headless_service(&cluster.name),
        ServiceSpec {
            cluster_ip: Some("None".to_owned()),
            publish_not_ready_addresses: Some(true),
            selector: Some(selector_labels(&cluster.name)),
            ..ServiceSpec::default()
        },
    )
}

/// Service `<name>`. It has no selector: its EndpointSlice is the supervisor's, who moves the master by one write.
pub fn master(cluster: &ValidCluster) -> Service {
    without_selector(cluster, cluster.name.clone(), &cluster.service)
}

/// Service `<name>-replicas`, for reads. Its EndpointSlice is the supervisor's, too.
pub fn replicas(cluster: &ValidCluster) -> Service {
    without_selector(cluster, names::replicas_service(&cluster.name), &cluster.replicas_service)
}

fn without_selector(cluster: &ValidCluster, name: String, options: &ServiceOptions) -> Service {
    let mut service = service(
        cluster,
        name,
        ServiceSpec {
            type_: Some(options.kind.as_str().to_owned()),
            load_balancer_class: options.load_balancer_class.clone(),
            load_balancer_source_ranges: options.load_balancer_source_ranges.clone(),
            external_traffic_policy: options
                .external_traffic_policy
                .map(ExternalTrafficPolicy::as_str)
                .map(str::to_owned),
            ..ServiceSpec::default()
        },
    );
    if !options.annotations.is_empty() {
        service.metadata.annotations = Some(options.annotations.clone());
    }
    service
}

fn service(cluster: &ValidCluster, name: String, spec: ServiceSpec) -> Service {
    let port = ServicePort {
        name: Some(names::PORT_NAME.to_owned()),
        port: i32::from(REDIS_PORT),
        protocol: Some("TCP".to_owned()),
        target_port: Some(IntOrString::Int(i32::from(REDIS_PORT))),
        ..ServicePort::default()
    };
    Service {
        metadata: metadata(cluster, name),
        spec: Some(ServiceSpec { ports: Some(vec![port]), ..spec }),
        ..Service::default()
    }
}
