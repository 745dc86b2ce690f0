//! The contract: what users write (spec), what they read (status), and the names of things.

pub mod crd;
pub mod names;
pub mod pod_template;
pub mod quantity;
pub mod service;
pub mod spec;
pub mod status;
pub mod storage;

pub use spec::{RedisCluster, RedisClusterSpec};
pub use status::RedisClusterStatus;
