//! A model of Redis servers, as far as a supervisor can tell the difference.

pub mod clients;
pub mod command;
pub mod cron;
pub mod feed;
pub mod info;
pub mod life;
pub mod process;
