#!/usr/bin/env bash
# Lints the chart and renders it, with its defaults and with each file of its ci/. What an API server says of the
# result is the business of e2e/scenarios/tests/chart.rs.
set -euo pipefail
cd "$(dirname "$0")/.."

readonly CHART=charts/redis-ha-operator
helm=$(e2e/helm/build.sh)
for values in "$CHART/values.yaml" "$CHART"/ci/*-values.yaml; do
    "$helm" lint --strict --quiet --values "$values" "$CHART"
    "$helm" template release "$CHART" --values "$values" >/dev/null
done
