#!/bin/sh
# Builds helm once for each state of its module files and prints the path of the
# binary. The cache lies outside the work tree and can be deleted at any time.
set -eu
cd "$(dirname "$0")"

cache="${XDG_CACHE_HOME:-$HOME/.cache}/redis-ha-operator"
hash=$( (cat go.mod go.sum build.sh; go env GOVERSION GOARCH) | sha256sum | cut -c1-16)
binary="$cache/helm-$hash/helm"
if [ ! -x "$binary" ]; then
    version=$(sed -n 's/^\t*helm.sh\/helm\/v3 \(v[0-9.]*\).*$/\1/p' go.mod)
    kubernetes=$(sed -n 's/^\t*k8s.io\/client-go v0\.\([0-9]*\)\..*$/\1/p' go.mod)
    # Without these `helm template` would believe in a Kubernetes that is long gone.
    chartutil=helm.sh/helm/v3/pkg/chartutil
    flags="-s -w -X helm.sh/helm/v3/internal/version.version=$version"
    flags="$flags -X $chartutil.k8sVersionMajor=1 -X $chartutil.k8sVersionMinor=$kubernetes"
    mkdir -p "$(dirname "$binary")"
    echo "building helm $version; the first build takes minutes" >&2
    CGO_ENABLED=0 go build -trimpath -ldflags "$flags" -o "$binary.$$" helm.sh/helm/v3/cmd/helm >&2
    # A rename, so that a second builder or a killed one leaves no half file.
    mv "$binary.$$" "$binary"
fi
echo "$binary"
