#!/usr/bin/env bash
# gotest.sh FLAG... PACKAGE... runs `go test`. What begins with ./ or with the name of the
# module is a package. `make lint` vets all packages; to vet them here would read all that
# they import once more.
#
# With TEST_REPORTS=FOLDER, as in CI, at most three tests that failed are run once more,
# alone, and what the tests did is written to FOLDER for test/ci/report.
set -euo pipefail

if [ -z "${TEST_REPORTS:-}" ]; then
  exec go test -vet=off "$@"
fi

flags=()
packages=()
format=standard-quiet
for arg in "$@"; do
  case "$arg" in
    . | ./* | hotseat.dev/*) packages+=("$arg") ;;
    -v) format=standard-verbose ;;
    *) flags+=("$arg") ;;
  esac
done
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
report=$(mktemp "$TEST_REPORTS/XXXXXX.json")
code=0
"$(go -C "$root" tool -n gotestsum)" --format "$format" --hide-summary skipped,failed \
  --rerun-fails=1 --rerun-fails-max-failures=3 \
  --jsonfile "$report" --packages "${packages[*]}" -- -vet=off "${flags[@]}" || code=$?
go -C "$root" run ./test/ci/report "$report"
exit "$code"
