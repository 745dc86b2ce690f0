//! Which server build an image name stands for.
//!
//! Nothing is downloaded: a build is a directory of programs on this machine
//! (`world run --image NAME=DIRECTORY`), or the host's own /usr.

use std::path::{Path, PathBuf};

use crate::paths;

/// Where a build's directory appears in a container; its programs, in the
/// directory itself or in its `bin`, come first in PATH.
pub const BUILD: &str = "/opt/build";

/// Images that are the host's own programs.
const OF_THE_HOST: [&str; 1] = ["redis:7.0"];

/// What a container gets from its image.
#[derive(Debug, PartialEq, Eq)]
pub struct Image {
    /// None: only the host's programs.
    pub build: Option<PathBuf>,
    /// Put before arguments that name no program, as Redis images do.
    pub server: Option<&'static str>,
}

/// The image of that name, or nothing: then it cannot be pulled.
pub fn find(name: &str) -> Option<Image> {
    find_in(|name| std::fs::read_to_string(paths::image(name)).ok().map(PathBuf::from), name)
}

fn find_in(builds: impl Fn(&str) -> Option<PathBuf>, name: &str) -> Option<Image> {
    let short = name.rsplit('/').next().unwrap_or(name);
    // Images of Valkey have their server under this name, too.
    let server = (short.starts_with("redis:") || short.starts_with("valkey:")).then_some("redis-server");
    let build = builds(name).or_else(|| builds(short));
    (build.is_some() || OF_THE_HOST.contains(&short)).then_some(Image { build, server })
}

impl Image {
    /// The command line, from the pod's `command` and `args`.
    pub fn command_line(&self, command: Vec<String>, args: Vec<String>) -> Vec<String> {
        if !command.is_empty() {
            return command.into_iter().chain(args).collect();
        }
        let only_options = args.first().is_none_or(|first| {
            first.starts_with('-') || Path::new(first).extension().is_some_and(|end| end == "conf")
        });
        let server = self.server.filter(|_| only_options).map(String::from);
        server.into_iter().chain(args).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_registry_in_the_name_does_not_matter() {
        let image = find_in(|_| None, "example.com/library/redis:7.0").unwrap();
        assert_eq!(image, Image { build: None, server: Some("redis-server") });
        assert_eq!(find_in(|_| None, "redis:99"), None);
    }

    #[test]
    fn options_alone_go_to_the_server() {
        let image = Image { build: None, server: Some("redis-server") };
        let line = |args: &[&str]| image.command_line(vec![], args.iter().map(ToString::to_string).collect());
        assert_eq!(line(&["/conf/redis.conf"]), ["redis-server", "/conf/redis.conf"]);
        assert_eq!(line(&[]), ["redis-server"]);
        assert_eq!(line(&["sh", "-c", "true"]), ["sh", "-c", "true"]);
    }
}
