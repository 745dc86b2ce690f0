//! The Redis room: connections to server processes, what they say, and the commands that change them.
//! Decides nothing; every outcome is a value of [`crate::core::event`].

pub mod commands;
pub mod info;
pub mod link;

#[cfg(test)]
pub(crate) mod server;
