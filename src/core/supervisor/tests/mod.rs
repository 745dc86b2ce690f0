//! The state machine on a small stage.

mod failover;
mod holds;
mod stage;
mod start;
