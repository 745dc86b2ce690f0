//! Facts about Redis and Valkey servers that decisions rest on, each a test against real servers.
//!
//! Servers are plain processes on 127.0.0.1, started from our own boot file and users, and changed by the
//! operator's own role commands over its own connections. Nothing else is ever talked to.

pub mod build;
pub mod cluster;
pub mod fact;
pub mod harness;
pub mod operator;
pub mod server;
pub mod wait;
pub mod wire;
