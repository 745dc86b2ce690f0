//! The making of a world: namespaces, network, control plane, the command run in it.

pub mod components;
pub mod control;
pub mod network;
pub mod options;
pub mod outside;
pub mod pid1;
pub mod processes;
pub mod supervisor;
