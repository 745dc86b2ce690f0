//! Tests of the world itself. They run inside one: `world run -- TEST-BINARY`.

mod containers;
mod control_plane;
mod deletion;
mod isolation;
mod network;
mod probes;
mod restarts;
mod services;
mod support;
mod volumes;
