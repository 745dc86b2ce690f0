//! The operator under test in a real Kubernetes: how to run it, how to use its clusters, and how to judge it
//! from outside.

pub mod access;
pub mod bench;
pub mod cluster;
pub mod confirmed;
pub mod crash_points;
pub mod helm;
pub mod judge;
pub mod operator;
pub mod reader;
pub mod scene;
pub mod seen;
pub mod servers;
pub mod slices;
pub mod writer;
