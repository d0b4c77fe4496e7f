#!/usr/bin/env bash
# Runs every fuzz target of the module, one after the other, for $1 (inputs, as
# 20000x, or time, as 1m) each. A failing one ends it.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
found=0
while IFS=: read -r file line; do
  target=$(sed -E 's/^func (Fuzz[A-Za-z0-9_]+).*/\1/' <<<"$line")
  echo "fuzz $target ($(dirname "$file"))"
  # Minimising an interesting input is bounded, for it can take longer than the run.
  go test -run '^$' -fuzz "^$target\$" -fuzztime "$1" -fuzzminimizetime 20x "./$(dirname "$file")" </dev/null
  found=$((found + 1))
done < <(grep -rE --include='*_test.go' '^func Fuzz' dualpods launcher spec test)
echo "fuzz: $found targets"
[ "$found" -gt 0 ]
