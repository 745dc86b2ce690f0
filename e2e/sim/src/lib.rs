//! The supervisor in a seeded, deterministic, discrete-event world on one thread.
//!
//! [`world::World`] holds servers, network, API server, kubelets, two operators with the real
//! `core::supervisor::Supervisor`, and clients; [`schedule`] draws faults; [`checkers`] look at the whole after
//! everything that happens; [`run`] takes a seed from its beginning to its end. See `docs/testing.md`.

pub mod checkers;
pub mod clients;
pub mod counts;
pub mod faults;
pub mod history;
pub mod kube;
pub mod matrix;
#[cfg(feature = "mutants")]
pub mod mutants;
pub mod net;
pub mod operator;
pub mod points;
pub mod queue;
pub mod redis;
pub mod rng;
pub mod run;
pub mod schedule;
pub mod seeds;
pub mod setup;
pub mod shrink;
pub mod story;
pub mod time;
pub mod world;
