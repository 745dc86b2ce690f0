#!/usr/bin/env bash
# Builds everything, runs the tests of all members of the workspace, and ends with one line: N passed, N failed.
# Tests of the packages under e2e/ need a Kubernetes: each of their binaries gets a fresh world of its own, but for
# conformance, which needs servers only. A binary that fails does not keep the others from running. With names as
# arguments: only those binaries.
set -euo pipefail
cd "$(dirname "$0")/.."

# No test binary needs nearly as long; one that hangs must not hang forever.
readonly LIMIT=40m

target=${CARGO_TARGET_DIR:-$PWD/target}
export CARGO_TARGET_DIR=$target
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT

say() {
    printf '\n== %s\n' "$*"
}

passed=0 failed=0 failures=()

say "fetching servers"
if ! e2e/servers/fetch.sh >"$scratch/servers"; then
    # The tests that need the missing one fail, too; those that are run on each would only be fewer.
    failed=1 failures=("servers: not all of them could be fetched")
fi
readarray -t servers <"$scratch/servers"

say "building"
e2e/kubebox/build.sh >/dev/null
HELM_BINARY=$(e2e/helm/build.sh)
export HELM_BINARY
# One build of everything: the operator with its crash points, the world, and all test binaries.
if ! cargo test --locked --workspace --features redis-ha-operator/crash-points --no-run \
    --message-format json-render-diagnostics >"$scratch/artifacts"; then
    echo "0 passed, 1 failed"
    exit 1
fi
# Figures are only worth something from the binary that is shipped.
cargo build --locked --release --package redis-ha-operator
export OPERATOR_BINARY=$target/debug/redis-ha-operator
export OPERATOR_RELEASE_BINARY=$target/release/redis-ha-operator

# Runs one test binary, shows what it prints, and adds up its totals.
run() { # NAME COMMAND...
    local name=$1 log=$scratch/log code=0 counted
    shift
    say "$name"
    timeout --kill-after 30s "$LIMIT" "$@" 2>&1 | tee "$log" || code=${PIPESTATUS[0]}
    counted=$(sed -nE 's/^test result: .* ([0-9]+) passed; ([0-9]+) failed;.*/\1 \2/p' "$log" | tail -n 1)
    local good=${counted% *} bad=${counted#* }
    while read -r test; do
        failures+=("$name: $test")
    done < <(sed -nE 's/^test (.*) \.\.\. FAILED$/\1/p' "$log")
    # It broke off, or could not start: what it did not say is not a success.
    if [[ $code -ne 0 && ${bad:-0} -eq 0 ]]; then
        bad=1
        failures+=("$name: ended with status $code")
    fi
    passed=$((passed + ${good:-0}))
    failed=$((failed + ${bad:-0}))
}

# Tests that start a redis-server take the first one in PATH: here each of the fetched builds in turn.
on_each_server() { # NAME BINARY ARGS...
    local name=$1 server before
    shift
    for server in "${servers[@]}"; do
        server=${server#--image=} before=$((passed + failed))
        run "$name on ${server%%=*}" env "PATH=${server#*=}/bin:$PATH" "$@"
        if [[ $((passed + failed)) -eq $before ]]; then
            failed=$((failed + 1))
            failures+=("$name on ${server%%=*}: no test was run")
        fi
    done
}

wanted() { # NAME
    [[ ${#names[@]} -eq 0 || " ${names[*]} " == *" $1 "* ]]
}

names=("$@")
while read -r directory kind name binary; do
    wanted "$name" || continue
    case "$directory $kind" in
    "e2e/conformance test") run "$name (all servers)" "$binary" "${servers[@]}" ;;
    e2e/*\ test) run "$name (in a world)" "$target/debug/world" run "${servers[@]}" -- "$binary" ;;
    *) run "$name ($kind)" env -C "$PWD/$directory" "$binary" ;;
    esac
    case "$name" in
    redis_ha_operator) on_each_server "$name" "$binary" redis:: ;;
    boot_file) on_each_server "$name" "$binary" ;;
    esac
done < <(
    # Of each test binary: folder of its package, kind and name of its target, path. The cheap ones come first.
    grep '"reason":"compiler-artifact"' "$scratch/artifacts" | grep -F '"test":true},"features"' | grep -v '"executable":null' |
        sed -E 's/.*"manifest_path":"([^"]*)\/Cargo.toml".*"kind":\["([^"]*)".*"name":"([^"]*)","src_path".*"executable":"([^"]*)".*/\1 \2 \3 \4/' |
        sed -e "s|^$PWD/||" -e "s|^$PWD |. |" |
        awk '{ print ($1 ~ /^e2e/ && $2 == "test") " " $0 }' | sort | cut -d ' ' -f 2-
)

if [[ ${#failures[@]} -gt 0 ]]; then
    say "failed"
    printf '%s\n' "${failures[@]}"
fi
echo
echo "$passed passed, $failed failed"
[[ $failed -eq 0 && $passed -gt 0 ]]
