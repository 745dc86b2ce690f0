//! A world: a real Kubernetes control plane, nodes and pods in fresh
//! namespaces without any way out, made by an ordinary user in seconds.
//!
//! Tests run inside it (`world run -- TEST`) and start with [`World::enter`].

pub mod addresses;
mod api;
#[doc(hidden)]
pub mod inside;
#[doc(hidden)]
pub mod node;
pub mod paths;
pub mod program;

pub use api::*;
