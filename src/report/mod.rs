//! Tells people what was decided and why: metrics, Events, HTTP, logs. Decides nothing.

pub mod events;
pub mod http;
pub mod log;
pub mod metrics;
