#!/usr/bin/env bash
# Runs the fuzz targets of the module, one after the other, for $1 (inputs, as
# 20000x, or time, as 1m) each. A failing one ends it. THIRD=HASH runs a third of them.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
picked=$(bash test/ci/long.sh pattern fuzz)
found=0
while IFS=: read -r file line; do
  target=$(sed -E 's/^func (Fuzz[A-Za-z0-9_]+).*/\1/' <<<"$line")
  [[ $target =~ $picked ]] || continue
  echo "fuzz $target ($(dirname "$file"))"
  # Minimising an interesting input is bounded, for it can take longer than the run.
  go test -run '^$' -fuzz "^$target\$" -fuzztime "$1" -fuzzminimizetime 20x "./$(dirname "$file")" </dev/null
  found=$((found + 1))
done < <(grep -rE --include='*_test.go' '^func Fuzz' dualpods launcher spec test)
echo "fuzz: $found targets"
[ "$found" -gt 0 ]
