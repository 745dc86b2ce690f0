//! What the operator relies on, asked of every server build at hand: `docs/conformance.md` has the table.

mod deaths;
mod fenced;
mod frozen;
mod identity;
mod pauses;
mod quorum;
mod restarts;
mod rights;
mod sickness;
mod switch;
mod sync;
mod telling;

use std::process::ExitCode;

fn main() -> ExitCode {
    conformance::harness::main(&[
        ("Born fenced", fenced::FACTS),
        ("Identity of data", identity::FACTS),
        ("Restarts", restarts::FACTS),
        ("Syncs", sync::FACTS),
        ("Write quorum", quorum::FACTS),
        ("Signs of death and life", deaths::FACTS),
        ("Frozen masters", frozen::FACTS),
        ("Sick servers", sickness::FACTS),
        ("Pauses", pauses::FACTS),
        ("Planned switch", switch::FACTS),
        ("Rights", rights::FACTS),
        ("What INFO tells", telling::FACTS),
    ])
}
