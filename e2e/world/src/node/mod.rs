//! A node: the pod runner, which stands in for the kubelet, and the hidden
//! processes through which it makes namespaces.

mod address_pool;
pub mod agent;
mod backoff;
pub mod claims;
mod container;
pub mod container_init;
pub mod container_process;
pub mod enter;
mod environment;
mod exec;
pub mod exec_process;
pub(crate) mod images;
mod kubelet_server;
mod log_reader;
mod objects;
mod plan;
mod pod;
mod probe;
mod register;
mod report;
mod rootfs;
mod sandbox;
pub mod sandbox_process;
mod status;
mod stop;
mod volumes;
