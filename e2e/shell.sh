#!/usr/bin/env bash
# Greets in a fresh world and becomes a shell. Run by `make world`, inside of it.
set -euo pipefail
cd "$(dirname "$0")/.."

export PATH="$CARGO_TARGET_DIR/debug:$PATH"
export KUBECACHEDIR=$WORLD/kube-cache # nothing is left behind
# Where nothing else is said, an operator started here finds its lease, and the image the pods have.
export REDIS_HA_LEASE_NAMESPACE=redis-ha-system REDIS_HA_DEFAULT_REDIS_IMAGE=redis:7.0
export PS1='(world) \w \$ '

cat <<END

A Kubernetes with three nodes and nothing in it. It ends with this shell.

  kubectl apply -f crds/ -f e2e/scenarios/manifests/operator.yaml    the definition, the rights
  redis-ha-operator run 2>$WORLD/operator.log &               an operator
  kubectl apply -f e2e/scenarios/manifests/cache.yaml                a cluster of three pods
  kubectl get rdc -w                                                 watch it
  world exec default/cache-0 -- redis-cli ping                       a command in a pod

Images: redis:7.0 (this machine's redis-server) and what e2e/servers brings: redis:8.2, valkey:9.1.

END
shell=${SHELL:-/bin/sh}
case "$shell" in
*/bash) exec "$shell" --norc ;;
*) exec "$shell" ;;
esac
