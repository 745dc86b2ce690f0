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
    /// Why the operator is right where builds differ, or where the fact surprises.
    pub note: Option<&'static str>,
    /// What was seen, in a word or two; an error when the fact does not hold in the way we rely on.
    pub ask: fn(Build) -> LocalBoxFuture<'static, Result<String>>,
}

/// `fact!(function, "what holds")`, and with `, "why we are right"` where builds differ.
#[macro_export]
macro_rules! fact {
    ($function:ident, $says:literal) => {
        $crate::fact!($function, $says, None)
    };
    ($function:ident, $says:literal, $note:literal) => {
        $crate::fact!($function, $says, Some($note))
    };
    ($function:ident, $says:literal, $note:expr) => {
        $crate::fact::Fact {
            name: concat!(module_path!(), "::", stringify!($function)),
            says: $says,
            note: $note,
            ask: |build| Box::pin($function(build)),
        }
    };
}

/// The same for every build: fails unless what was seen is this.
pub fn seen(what: &str, wanted: &str) -> Result<String> {
    anyhow::ensure!(what == wanted, "expected {wanted:?}, saw {what:?}");
    Ok(what.to_owned())
}
