//! The contract: what users write (spec), what they read (status), and the names of things.

pub mod crd;
pub mod names;
pub mod quantity;
pub mod spec;
pub mod status;

pub use spec::{RedisCluster, RedisClusterSpec};
pub use status::RedisClusterStatus;
