//! The command line. Every flag is an environment variable, too.

use std::net::SocketAddr;

use clap::{Args, Parser, Subcommand};

use crate::report::log::LogFormat;

/// Keeps Redis on Kubernetes writable when its master dies.
#[derive(Debug, Parser)]
#[command(name = "redis-ha-operator", version, about, propagate_version = true)]
pub struct Cli {
    #[command(subcommand)]
    pub command: Command,
}

/// What the program can do.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Run the operator until it is told to stop.
    Run(Box<RunArgs>),
    /// Print the custom resource definition as YAML.
    Crd,
    /// Print the version.
    Version,
}

/// Settings of the operator.
#[derive(Clone, Debug, Args)]
pub struct RunArgs {
    /// Namespace whose clusters are looked after; all namespaces when absent.
    #[arg(long, env = "REDIS_HA_NAMESPACE", value_name = "NAMESPACE", value_parser = parse_name)]
    pub namespace: Option<String>,

    /// Lease by which one of several operators is chosen to act. Name it after the release.
    #[arg(long, env = "REDIS_HA_LEASE_NAME", value_name = "NAME", default_value = "redis-ha-operator")]
    pub lease_name: String,

    /// Namespace of the lease; the operator's own when absent.
    #[arg(long, env = "REDIS_HA_LEASE_NAMESPACE", value_name = "NAMESPACE", value_parser = parse_name)]
    pub lease_namespace: Option<String>,

    /// Name of this operator's pod; the host's name when absent.
    #[arg(long, env = "REDIS_HA_POD_NAME", value_name = "POD", value_parser = parse_name)]
    pub pod_name: Option<String>,

    /// Image of clusters that name none.
    #[arg(
        long,
        env = "REDIS_HA_DEFAULT_REDIS_IMAGE",
        value_name = "IMAGE",
        default_value = "docker.io/library/redis:8.2"
    )]
    pub default_redis_image: String,

    /// Key of a taint with which nodes are emptied here: a master moves away from a node that has it. May be repeated,
    /// or a list with commas. Those of kubectl, the cluster autoscaler, Karpenter and the clouds are known.
    #[arg(
        long,
        env = "REDIS_HA_DRAIN_TAINT",
        value_name = "KEY",
        value_delimiter = ',',
        value_parser = parse_taint
    )]
    pub drain_taint: Vec<String>,

    /// Where /metrics, /healthz and /readyz are served.
    #[arg(long, env = "REDIS_HA_HTTP_ADDRESS", value_name = "IP:PORT", default_value = "[::]:8080")]
    pub http_address: SocketAddr,

    /// Shape of the log lines.
    #[arg(long, env = "REDIS_HA_LOG_FORMAT", value_enum, default_value_t = LogFormat::Text)]
    pub log_format: LogFormat,

    /// What is logged: a level, or a list of target=level. (The client's own errors are ours to tell.)
    #[arg(long, env = "REDIS_HA_LOG_FILTER", value_name = "FILTER", default_value = "info,kube_client=off")]
    pub log_filter: String,

    /// Unix socket of a test that is asked before and after each effect.
    #[cfg(feature = "crash-points")]
    #[arg(long, env = "REDIS_HA_CRASH_POINTS_SOCKET", value_name = "PATH", hide = true)]
    pub crash_points_socket: Option<std::path::PathBuf>,
}

/// An empty variable is a mistake in a manifest, not a choice.
fn parse_name(text: &str) -> Result<String, String> {
    let fits = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || matches!(byte, b'-' | b'.');
    if text.is_empty() || text.len() > 253 || !text.bytes().all(fits) {
        return Err("a Kubernetes name has 1 to 253 lower-case letters, digits, '-' or '.'".into());
    }
    Ok(text.into())
}

/// A taint's key: `name`, or `domain/name`.
fn parse_taint(text: &str) -> Result<String, String> {
    let fits = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_' | b'/');
    if text.is_empty() || text.len() > 317 || !text.bytes().all(fits) {
        return Err("write the key alone, for example example.com/maintenance".into());
    }
    Ok(text.into())
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn the_command_line_is_consistent_and_has_defaults_for_everything() {
        Cli::command().debug_assert();
        let Command::Run(args) = Cli::try_parse_from(["redis-ha-operator", "run"]).unwrap().command else {
            panic!("run is a command");
        };
        assert_eq!(args.lease_name, "redis-ha-operator");
        assert_eq!(args.http_address.port(), 8080);
    }

    #[test]
    fn every_flag_is_an_environment_variable_too() {
        let command = Cli::command();
        let run = command.find_subcommand("run").unwrap();
        let flags: Vec<_> = run.get_arguments().filter(|arg| arg.get_long().is_some()).collect();
        assert!(flags.len() >= 8);
        for flag in flags {
            let long = flag.get_long().unwrap();
            let expected = format!("REDIS_HA_{}", long.replace('-', "_").to_uppercase());
            assert_eq!(flag.get_env().unwrap().to_str().unwrap(), expected, "--{long}");
        }
    }

    #[test]
    fn taints_are_repeated_or_a_list() {
        let line = ["redis-ha-operator", "run", "--drain-taint", "a,example.com/b", "--drain-taint", "c"];
        let Command::Run(args) = Cli::try_parse_from(line).unwrap().command else {
            panic!("run is a command");
        };
        assert_eq!(args.drain_taint, ["a", "example.com/b", "c"]);
    }

    #[test]
    fn a_wrong_value_is_refused_with_a_sentence() {
        for wrong in [
            ["--namespace", ""],
            ["--namespace", "Shop"],
            ["--http-address", "8080"],
            ["--log-format", "xml"],
            ["--drain-taint", "key=value:NoSchedule"],
        ] {
            let error = Cli::try_parse_from(["redis-ha-operator", "run", wrong[0], wrong[1]]).unwrap_err();
            assert!(error.to_string().contains(wrong[0]), "{error}");
        }
    }
}
