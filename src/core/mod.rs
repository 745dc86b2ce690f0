//! The pure core: facts in, decisions out. No async, no clock, no client, no randomness.

pub mod advance;
pub mod candidate;
pub mod cold;
pub mod decide;
pub mod event;
pub mod facts;
pub mod heal;
pub mod health;
pub mod held;
pub mod mechanism;
pub mod members;
pub mod objects;
pub mod permission;
pub mod plan;
pub mod readiness;
pub mod reads;
pub mod route;
#[cfg(test)]
pub mod scene;
pub mod situation;
pub mod story;
pub mod successor;
pub mod supervisor;
pub mod switch;
pub mod valid;
