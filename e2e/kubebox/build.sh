#!/bin/sh
# Builds kubebox once for each state of its sources and prints the path of the
# binary. The cache lies outside the work tree and can be deleted at any time.
set -eu
cd "$(dirname "$0")"

cache="${XDG_CACHE_HOME:-$HOME/.cache}/redis-ha-operator"
hash=$( (cat go.mod go.sum ./*.go build.sh; go env GOVERSION GOARCH) | sha256sum | cut -c1-16)
binary="$cache/kubebox-$hash/kubebox"
if [ ! -x "$binary" ]; then
    version=$(sed -n 's/^\t*k8s.io\/kubernetes \(v[0-9.]*\)$/\1/p' go.mod)
    minor=${version#v1.}
    flags="-s -w"
    # Without these the servers would call themselves v0.0.0.
    for package in k8s.io/component-base/version k8s.io/client-go/pkg/version; do
        flags="$flags -X $package.gitVersion=$version -X $package.gitMajor=1 -X $package.gitMinor=${minor%%.*} -X $package.gitTreeState=clean"
    done
    mkdir -p "$(dirname "$binary")"
    echo "building kubebox (Kubernetes $version); the first build takes minutes" >&2
    CGO_ENABLED=0 go build -trimpath -ldflags "$flags" -o "$binary.$$" . >&2
    # A rename, so that a second builder or a killed one leaves no half file.
    mv "$binary.$$" "$binary"
fi
echo "$binary"
