//! The program: everything it does is in the library.

use std::process::ExitCode;

use clap::Parser;
use redis_ha_operator::app;
use redis_ha_operator::cli::Cli;

fn main() -> ExitCode {
    // Explicitly, so that a second provider in the dependency tree cannot make the first connection fail.
    let provider = rustls::crypto::ring::default_provider().install_default();
    match (provider, app::main(Cli::parse())) {
        (Ok(()), Ok(())) => ExitCode::SUCCESS,
        (Err(_), _) => {
            eprintln!("redis-ha-operator: another TLS provider is installed already");
            ExitCode::FAILURE
        }
        (_, Err(error)) => {
            eprintln!("redis-ha-operator: {error}");
            ExitCode::FAILURE
        }
    }
}
