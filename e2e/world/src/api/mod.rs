//! What tests use inside a world.

mod connect;

pub use connect::{api_ready, connect};
