//! Server builds for image names.

use std::path::Path;

use anyhow::{Context, Result};

use crate::node::images;
use crate::paths;

/// From now on containers of image `name` find the programs of `directory`: it
/// appears as `/opt/build`, and it and its `bin` come first in `PATH`.
pub fn add_image(name: &str, directory: &Path) -> Result<()> {
    let directory = std::path::absolute(directory).context("find the build's directory")?;
    let path = directory.to_str().context("a build's path is not UTF-8")?;
    std::fs::write(paths::image(name), path).with_context(|| format!("note the build of {name}"))
}

/// Whether containers of image `name` can be started.
pub fn has_image(name: &str) -> bool {
    images::find(name).is_some()
}
