//! A fact: a sentence about a server, and how to find out whether it holds.

use anyhow::Result;
use futures::future::LocalBoxFuture;

use crate::build::Build;

/// One row of the table.
pub struct Fact {
    /// Module and name of the function.
    pub name: &'static str,
    /// What holds, for people.
    pub says: &'static str,
    /// Why the operator is right for all of them, where builds differ.
    pub differs: Option<&'static str>,
    /// What was seen, in a word or two; an error when the fact does not hold in the way we rely on.
    pub ask: fn(Build) -> LocalBoxFuture<'static, Result<String>>,
}

/// `fact!(function, "what holds")`, and with `, "why we are right for all builds"` where they differ.
#[macro_export]
macro_rules! fact {
    ($function:ident, $says:literal) => {
        $crate::fact!($function, $says, None)
    };
    ($function:ident, $says:literal, $differs:literal) => {
        $crate::fact!($function, $says, Some($differs))
    };
    ($function:ident, $says:literal, $differs:expr) => {
        $crate::fact::Fact {
            name: concat!(module_path!(), "::", stringify!($function)),
            says: $says,
            differs: $differs,
            ask: |build| Box::pin($function(build)),
        }
    };
}

/// The same for every build: fails unless what was seen is this.
pub fn seen(what: &str, wanted: &str) -> Result<String> {
    anyhow::ensure!(what == wanted, "expected {wanted:?}, saw {what:?}");
    Ok(what.to_owned())
}
