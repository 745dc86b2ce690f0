#!/usr/bin/env bash
# Builds what the demo needs and runs it in a fresh world. KEEP=1 leaves a shell in that world at the end.
set -euo pipefail
cd "$(dirname "$0")/.."

e2e/kubebox/build.sh >/dev/null
cargo build --locked --quiet --package world --package scenarios --bins
echo "building the operator (release); the first time this takes minutes" >&2
cargo build --locked --quiet --release --package redis-ha-operator

target=${CARGO_TARGET_DIR:-$PWD/target}
export OPERATOR_BINARY=$target/release/redis-ha-operator
exec "$target/debug/world" run -- "$target/debug/demo"
