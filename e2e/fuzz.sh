#!/usr/bin/env bash
# Runs every fuzz target for FUZZTIME (default 30s) each.
set -euo pipefail
cd "$(dirname "$0")/.."
time=${FUZZTIME:-30s}
n=0
while IFS=: read -r file line; do
  name=$(sed -n 's/^func \(Fuzz[A-Za-z0-9_]*\)(.*/\1/p' <<<"$line")
  dir=$(dirname "$file")
  echo "fuzz $dir $name for $time"
  go test -run '^$' -fuzz "^$name\$" -fuzztime "$time" -fuzzminimizetime 10x "./$dir"
  n=$((n + 1))
done < <(grep -rn --include='*_test.go' -E '^func Fuzz[A-Za-z0-9_]*\(' appliance engine extensions store | sed -E 's/:[0-9]+:/:/')
echo "$n fuzz targets ran"
[ "$n" -gt 0 ]
