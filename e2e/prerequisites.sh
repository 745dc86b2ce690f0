#!/usr/bin/env bash
# Sees to what the demo and the tests need besides this repository. Where it may install packages (as root, or by
# sudo without a password, on a system with apt) it installs what is missing and no more; else it ends with a
# list of everything that is missing and the command that brings it. Runs in a moment when all is there.
set -euo pipefail
cd "$(dirname "$0")/.."
PATH="$PATH:/usr/sbin:/sbin" # where Debian keeps ip and nft, also from ordinary users

missing=()  # one line each: what, and the command that brings it
packages=() # of these what apt can bring

need() { # COMMAND PACKAGE WHAT-FOR
    command -v "$1" >/dev/null || packages+=("$2|$1|$3")
}

lack() { # WHAT REMEDY
    missing+=("$1"$'\n'"      $2")
}

at_least() { # FOUND WANTED
    [[ "$(printf '%s\n%s\n' "$2" "$1" | sort -V | head -n 1)" == "$2" ]]
}

look_for_packages() {
    packages=()
    need redis-server redis-server "the servers in the pods"
    need redis-cli redis-tools "looking into the servers"
    need ip iproute2 "networks of the pods"
    need nft nftables "kube-proxy and cut links"
    need unshare util-linux "namespaces"
    need cc build-essential "linking"
    need pip3 python3-pip "more server builds for the tests"
    need shellcheck shellcheck "make lint"
}

may_install() {
    command -v apt-get >/dev/null && { [[ $EUID -eq 0 ]] || sudo -n true 2>/dev/null; }
}

as_root() {
    if [[ $EUID -eq 0 ]]; then "$@"; else sudo -n "$@"; fi
}

# Debian starts a service when its package is installed. The package's program is wanted here, not a server that
# runs on this machine: forbid starts during this installation by Debian's own means, and at the next boot.
install_packages() {
    local names=("${packages[@]%%|*}") policy=/usr/sbin/policy-rc.d log
    log=$(mktemp)
    echo "installing: ${names[*]}"
    if ! as_root test -e "$policy"; then
        printf '#!/bin/sh\nexit 101\n' | as_root tee "$policy" >/dev/null
        as_root chmod 755 "$policy"
        trap 'as_root rm -f /usr/sbin/policy-rc.d' EXIT
    fi
    if ! { as_root apt-get update && as_root env DEBIAN_FRONTEND=noninteractive \
        apt-get install --yes --no-install-recommends "${names[@]}"; } >"$log" 2>&1; then
        tail -n 20 "$log" >&2
    elif [[ " ${names[*]} " == *" redis-server "* ]] && command -v systemctl >/dev/null; then
        as_root systemctl disable redis-server >/dev/null 2>&1 || true # no systemd runs: nothing to do
    fi
    rm -f "$log"
    if [[ -n "$(trap -p EXIT)" ]]; then
        as_root rm -f "$policy"
        trap - EXIT
    fi
    hash -r
}

look_for_packages
if [[ ${#packages[@]} -gt 0 ]] && may_install; then
    install_packages
    look_for_packages
fi
for entry in "${packages[@]}"; do
    IFS='|' read -r package command purpose <<<"$entry"
    if command -v apt-get >/dev/null; then
        lack "$command ($purpose)" "sudo apt-get install --no-install-recommends $package"
    else
        lack "$command ($purpose)" "install the package that is called $package on Debian"
    fi
done

rust=$(sed -n 's/^rust-version = "\([0-9.]*\)".*/\1/p' Cargo.toml)
if ! command -v cargo >/dev/null || ! command -v rustc >/dev/null; then
    lack "Rust $rust or later" "see https://rustup.rs, or: sudo apt-get install rustup && rustup default stable"
else
    found=$(rustc --version | cut -d ' ' -f 2)
    at_least "$found" "$rust" || lack "Rust $rust or later (this is $found)" "rustup update stable"
    cargo fmt --version >/dev/null 2>&1 || lack "rustfmt (make lint)" "rustup component add rustfmt"
    cargo clippy --version >/dev/null 2>&1 || lack "clippy (make lint)" "rustup component add clippy"
fi

go=$(sed -n 's/^go \([0-9.]*\)$/\1/p' e2e/*/go.mod | sort -V | tail -n 1)
if ! command -v go >/dev/null; then
    lack "Go $go or later (builds the embedded Kubernetes and helm)" "see https://go.dev/dl, or: sudo apt-get install golang-go"
else
    found=$(go env GOVERSION)
    at_least "${found#go}" "$go" || lack "Go $go or later (this is ${found#go})" "see https://go.dev/dl"
fi

if command -v unshare >/dev/null && ! unshare --user --map-root-user --net --mount --pid --fork true 2>/dev/null; then
    shut=()
    [[ "$(cat /proc/sys/user/max_user_namespaces 2>/dev/null)" == 0 ]] && shut+=("user.max_user_namespaces=15000")
    [[ "$(cat /proc/sys/kernel/unprivileged_userns_clone 2>/dev/null)" == 0 ]] && shut+=("kernel.unprivileged_userns_clone=1")
    [[ "$(cat /proc/sys/kernel/apparmor_restrict_unprivileged_userns 2>/dev/null)" == 1 ]] &&
        shut+=("kernel.apparmor_restrict_unprivileged_userns=0")
    if [[ ${#shut[@]} -gt 0 ]]; then
        lack "user namespaces (the embedded Kubernetes lives in one)" "sudo sysctl -w ${shut[*]}"
    else
        lack "user namespaces (the embedded Kubernetes lives in one)" \
            "in a container: allow unshare(2), for Docker --security-opt seccomp=unconfined --cap-add SYS_ADMIN"
    fi
fi

if [[ ${#missing[@]} -gt 0 ]]; then
    {
        echo "What is missing, and the command that brings it:"
        printf '  - %s\n' "${missing[@]}"
    } >&2
    exit 1
fi
