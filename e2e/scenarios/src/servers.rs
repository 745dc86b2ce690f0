//! Which server build the pods run.

use std::env;

use anyhow::{Result, ensure};

/// Names the image of all pods whose cluster asks for no other.
const VARIABLE: &str = "REDIS_IMAGE";
/// The distribution's own redis-server.
const USUAL: &str = "redis:7.0";

/// Image of the pods whose cluster asks for none.
pub fn usual() -> String {
    env::var_os(VARIABLE).map_or_else(|| USUAL.to_owned(), |image| image.to_string_lossy().into_owned())
}

/// Fails where pods of this image could never start.
pub fn ensure_here(image: &str) -> Result<()> {
    ensure!(
        world::has_image(image),
        "this world has no server build for the image {image}: run e2e/servers/fetch.sh, it says what is wrong \
         with it or prints the --image argument that `world run` needs"
    );
    Ok(())
}
