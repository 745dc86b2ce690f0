//! The pure core: facts in, decisions out. No async, no clock, no client, no randomness.

pub mod event;
pub mod facts;
pub mod objects;
pub mod valid;
