//! The state machine on a small stage.

mod failover;
mod holds;
mod review;
mod stage;
mod start;
mod storm;
mod switch;
