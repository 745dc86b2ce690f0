//! The chart and the program belong together: same definition, same version, every setting within reach.

use std::fs;

use clap::CommandFactory;
use redis_ha_operator::api::crd;
use redis_ha_operator::cli::Cli;

fn chart(file: &str) -> String {
    let path = format!("{}/charts/redis-ha-operator/{file}", env!("CARGO_MANIFEST_DIR"));
    fs::read_to_string(&path).unwrap_or_else(|error| panic!("read {path}: {error}"))
}

#[test]
fn the_chart_has_the_definition_of_this_program() {
    let committed = chart("files/redisclusters.redis-ha.dev.yaml");
    assert!(committed == crd::yaml().unwrap(), "the chart's definition is stale: run `make generate`");
}

#[test]
fn the_chart_names_the_version_of_this_program() {
    let wanted = format!("appVersion: {}", env!("CARGO_PKG_VERSION"));
    assert!(chart("Chart.yaml").lines().any(|line| line == wanted), "Chart.yaml must say {wanted}");
}

#[test]
fn the_chart_can_set_every_flag() {
    let deployment = chart("templates/deployment.yaml");
    let command = Cli::command();
    let run = command.find_subcommand("run").unwrap();
    let variables: Vec<_> = run
        .get_arguments()
        .filter(|flag| !flag.is_hide_set())
        .filter_map(|flag| flag.get_env())
        .map(|variable| variable.to_str().unwrap())
        .collect();
    assert!(variables.len() >= 8, "{variables:?}");
    for variable in variables {
        assert!(deployment.contains(&format!("- name: {variable}\n")), "nothing sets {variable}");
    }
}
