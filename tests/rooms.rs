//! The house rules that the compiler does not know: the core stays pure, and writes have an address.

use std::fs;
use std::path::{Path, PathBuf};

/// Words that no line of the core may import or name by path: clients, runtimes, clocks, chance.
const IMPURE: [&str; 14] = [
    "kube::Client",
    "kube::Api",
    "kube::api",
    "kube::runtime",
    "kube::client",
    "tokio",
    "redis::",
    "futures",
    "std::time::Instant",
    "SystemTime",
    "Timestamp::now",
    "getrandom",
    "rand::",
    "std::net::Tcp",
];

/// What changes the world outside, and who may do it. `.replace(` alone is also what texts and options do;
/// in a file that names no `Api` it writes nothing.
const WRITES: [&str; 6] = ["Api<", "Api::", ".patch(", ".create(", ".delete(", "REPLICAOF"];
const WRITERS: [&str; 4] = ["kube/", "redis/", "controller/", "report/events.rs"];

#[test]
fn the_core_names_no_client_no_runtime_no_clock_and_no_chance() {
    let files = sources(|path| path.starts_with("core/"));
    assert!(files.len() >= 4, "the core has moved: {files:?}");
    let found = offences(&files, |line| IMPURE.iter().copied().find(|word| names(line, word)));
    assert!(found.is_empty(), "the core is pure; these lines are not:\n{}", found.join("\n"));
}

#[test]
fn only_the_rooms_that_may_write_do() {
    let files = sources(|path| !WRITERS.iter().any(|writer| path.starts_with(writer)));
    assert!(files.len() >= 10, "{files:?}");
    let found = offences(&files, |line| WRITES.iter().copied().find(|write| line.contains(write)));
    assert!(found.is_empty(), "these rooms may not write:\n{}", found.join("\n"));
}

#[test]
fn the_scan_finds_what_it_looks_for_and_lets_comments_and_our_own_rooms_be() {
    let impure = |line: &str| IMPURE.iter().any(|word| code(line).is_some_and(|code| names(code, word)));
    for line in [
        "use tokio::sync::mpsc;",
        "use kube::{Api, Client};",
        "use kube::runtime::watcher;",
        "    let now = std::time::Instant::now();",
        "use redis::Client;",
    ] {
        assert!(impure(line), "{line}");
    }
    for line in ["//! No tokio here.", "    // like tokio", "use crate::redis::info;", "let latest = epoch;"]
    {
        assert!(!impure(line), "{line}");
    }
    // The rooms that do write are really looked at.
    let writers = sources(|path| path.starts_with("kube/"));
    assert!(!offences(&writers, |line| line.contains(".replace(").then_some(".replace(")).is_empty());
}

/// Whether the line names the word, and not a room of ours that is called alike. A group of imports names
/// each of its members.
fn names(line: &str, word: &str) -> bool {
    if let Some((start, group)) = line.trim().strip_prefix("use ").and_then(|rest| rest.split_once('{')) {
        let members = group.trim_end_matches(['}', ';', ' ']).split(',');
        return members.into_iter().any(|member| names(&format!("{start}{}", member.trim()), word));
    }
    let part_of_a_name = |c: char| c.is_ascii_alphanumeric() || c == '_';
    line.match_indices(word).any(|(at, _)| {
        let (before, after) = (&line[..at], &line[at + word.len()..]);
        let whole_start = !before.ends_with(part_of_a_name);
        let whole_end = word.ends_with("::") || word.ends_with("Tcp") || !after.starts_with(part_of_a_name);
        let ours = before.ends_with("crate::") || before.ends_with("super::");
        whole_start && whole_end && !ours
    })
}

/// The line without what only people read. `None`: nothing is left.
fn code(line: &str) -> Option<&str> {
    let code = line.split("//").next().unwrap_or_default().trim_end();
    (!code.trim().is_empty()).then_some(code)
}

/// `file:line: word` for each line of code before the tests of its file.
fn offences(files: &[PathBuf], offence: impl Fn(&str) -> Option<&'static str>) -> Vec<String> {
    let mut found = Vec::new();
    for file in files {
        let text = fs::read_to_string(root().join(file)).unwrap();
        let shipped = text.split("#[cfg(test)]\nmod tests").next().unwrap();
        for (number, line) in shipped.lines().enumerate() {
            if let Some(word) = code(line).and_then(&offence) {
                found.push(format!("src/{}:{}: {word}", file.display(), number + 1));
            }
        }
    }
    found
}

/// Shipped source files, relative to `src`, with `/` between folders.
fn sources(wanted: impl Fn(&str) -> bool) -> Vec<PathBuf> {
    let mut files = Vec::new();
    let mut folders = vec![root()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
                continue;
            }
            let relative = path.strip_prefix(root()).unwrap().to_path_buf();
            let name = relative.to_str().unwrap();
            let test = name.split('/').any(|part| part.starts_with("tests")) || name.ends_with("_tests.rs");
            if path.extension().is_some_and(|it| it == "rs") && !test && wanted(name) {
                files.push(relative);
            }
        }
    }
    files
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("src")
}
