//! redis-ha-operator: keeps Redis on Kubernetes writable when its master dies.
//!
//! Two loops share one pure core. The [`controller`] makes Kubernetes objects equal to the spec; the
//! [`supervisor`] owns roles: it watches the servers, decides in [`core`], and acts through [`redis`]
//! and [`kube`]. [`report`] tells people what was decided and why. [`app`] wires all of it together.

#![deny(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::todo,
    clippy::unimplemented
)]

pub mod api;
pub mod app;
pub mod cli;
pub mod controller;
pub mod core;
pub mod kube;
pub mod redis;
pub mod report;
pub mod supervisor;
