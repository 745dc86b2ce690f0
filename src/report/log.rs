//! Logging to standard error, as text for people or JSON for machines.

use std::io::IsTerminal;

use clap::ValueEnum;
use tracing_subscriber::EnvFilter;
use tracing_subscriber::fmt::format::FmtSpan;

/// Shape of the log lines.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum LogFormat {
    /// One readable line each.
    #[default]
    Text,
    /// One JSON object each.
    Json,
}

/// Logging could not be set up.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The filter is no list of `target=level`.
    #[error(
        "the log filter {filter:?} cannot be read: {source}; write for example info,redis_ha_operator=debug"
    )]
    Filter {
        filter: String,
        #[source]
        source: tracing_subscriber::filter::ParseError,
    },
    /// Somebody else has set it up.
    #[error("logging is set up already: {0}")]
    Twice(Box<dyn std::error::Error + Send + Sync>),
}

/// Starts logging for the whole process.
pub fn start(format: LogFormat, filter: &str) -> Result<(), Error> {
    let lines = tracing_subscriber::fmt()
        .with_env_filter(parse(filter)?)
        .with_span_events(FmtSpan::NONE)
        .with_writer(std::io::stderr)
        .with_ansi(std::io::stderr().is_terminal());
    let started = match format {
        LogFormat::Text => lines.try_init(),
        LogFormat::Json => lines.json().flatten_event(true).try_init(),
    };
    started.map_err(Error::Twice)
}

fn parse(filter: &str) -> Result<EnvFilter, Error> {
    EnvFilter::try_new(filter).map_err(|source| Error::Filter { filter: filter.into(), source })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_filter_that_cannot_be_read_is_refused_with_an_example() {
        assert!(parse("info,redis_ha_operator=debug").is_ok());
        let error = parse("info,redis=verbose").unwrap_err().to_string();
        assert!(error.contains("\"info,redis=verbose\"") && error.contains("for example"), "{error}");
    }
}
