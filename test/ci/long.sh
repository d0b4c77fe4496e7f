#!/usr/bin/env bash
# long.sh names the long tests, and three targets that take long on a machine without caches.
# CI runs a third of each kind. THIRD=HASH picks the third: the same hash, the same tests.
# Without THIRD all of them are picked.
#
#   long.sh picked KIND    names the picked ones, one a line
#   long.sh pattern KIND   makes a regular expression of them, for go test -run
#   long.sh omitted KIND   makes one of the others, for go test -skip; nothing when there are none
#
#   KIND is cluster, vllm, defects, releases, fuzz or targets.
set -euo pipefail
shopt -s inherit_errexit
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

# tests TAG FOLDER... names the tests of the files that need the build tag.
tests() {
  local tag=$1
  shift
  grep -rlE --include='*_test.go' "^//go:build .*\b$tag\b" "$@" | xargs sed -nE 's/^func (Test[A-Z0-9]\w*)\(.*/\1/p' | grep -vx TestMain
}

names() {
  case "$1" in
    cluster) tests clusterlong test/cluster dualpods/internal/trust/installation ;;
    # TestARelease is the one life by exec and by fork that every run shows.
    vllm) tests vllm launcher test/conformance test/helpers/hubserver test/vllm | grep -vx TestARelease ;;
    defects) sed -nE 's/.*schedules\.NewDefect\("([^"]*)".*/\1/p' launcher/internal/core/{simulation,scheduler}/defects_test.go dualpods/internal/{model/decide,roles/gang,roles/groups}/defects_test.go dualpods/internal/simulation/{,ranks/}defects_test.go ;;
    fuzz) grep -rhE --include='*_test.go' '^func Fuzz' dualpods launcher spec test | sed -E 's/^func (Fuzz[A-Za-z0-9_]+).*/\1/' ;;
    targets) printf '%s\n' test-clients test-llm-d test-long test-models ;;
    releases) tr ' ' '\n' <<<"${RELEASES:?names the releases}" ;;
    *) echo "long.sh: unknown kind: $1" >&2 && return 2 ;;
  esac
}

# divided KIND prints the names with 1 before those that are picked, 0 before others. A name
# and THIRD are hashed together, which gives an order; the first third of it is picked.
divided() {
  local all
  all=$(names "$1")
  LC_ALL=C sort -R --random-source=<(sha256sum <<<"${THIRD:-}") <<<"$all" |
    awk -v n="$(wc -l <<<"$all")" -v third="${THIRD:-}" '{ print (third == "" || NR <= (n + 2) / 3 ? 1 : 0) " " $0 }'
}

# alternatives makes ^(a|b)$ of lines, or nothing of none.
alternatives() {
  local text
  text=$(sed -E 's/[][\\.*^$+?(){}|]/\\&/g' | paste -sd'|')
  if [ -n "$text" ]; then printf '^(%s)$\n' "$text"; fi
}

list=$(divided "${2:?names the kind}")
case "$1" in
  picked) sed -n 's/^1 //p' <<<"$list" ;;
  pattern) sed -n 's/^1 //p' <<<"$list" | alternatives ;;
  omitted) sed -n 's/^0 //p' <<<"$list" | alternatives ;;
  *) echo "long.sh: unknown request: $1" >&2 && exit 2 ;;
esac
