#!/usr/bin/env bash
# Fails when a file that is made by a tool is not what the tool makes now, when
# the OpenAPI document breaks OpenAPI's rules, when a Go file is not formatted,
# when a go.mod is not tidy, when git keeps a file that .gitignore leaves out,
# when a table of a document has more than 25 rows, or when a merge has left
# conflicts.
# Touches nothing.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
bad=0

unformatted=$(gofmt -l dualpods launcher spec test | grep -v ^test/llmd/source/ || true) # which is not ours
if [ -n "$unformatted" ]; then
  echo "not formatted (run: make generate): $unformatted" >&2
  bad=1
fi

conflicts=$(git grep -lE '^(<<<<<<<|>>>>>>>) ' || true)
if [ -n "$conflicts" ]; then
  echo "a merge has left conflicts in: $conflicts" >&2
  bad=1
fi

kept=$(git ls-files --cached --ignored --exclude-standard | head -5)
if [ -n "$kept" ]; then
  echo "git keeps files that .gitignore leaves out (run: git rm --cached): $kept" >&2
  bad=1
fi

# A table's first two lines are its header.
long=$(git ls-files '*.md' | xargs awk '
  FNR == 1 || !/^ *\|/ { rows = -2 }
  /^ *\|/ && ++rows == 26 { print FILENAME ":" FNR }')
if [ -n "$long" ]; then
  echo "a table has more than 25 rows (split it, by what its readers look for): $long" >&2
  bad=1
fi

go run ./launcher/internal/edges/api/genopenapi "$work/openapi.yaml"
if ! diff -u spec/launcherapi/openapi.yaml "$work/openapi.yaml" >&2; then
  echo "spec/launcherapi/openapi.yaml is not what the types say (run: make generate)" >&2
  bad=1
fi

if ! go tool validate --multi -- "$work/openapi.yaml"; then
  echo "spec/launcherapi/openapi.yaml is no good OpenAPI document (mend what it is made from in launcher/internal/edges/api or spec/launcherapi)" >&2
  bad=1
fi

go tool controller-gen object crd paths=./spec/v1alpha1 output:object:dir="$work/object" output:crd:dir="$work/crds"
if ! diff -u spec/v1alpha1/zz_generated.deepcopy.go "$work/object/zz_generated.deepcopy.go" >&2 ||
  ! diff -ru deploy/chart/crds "$work/crds" >&2; then
  echo "spec/v1alpha1/zz_generated.deepcopy.go or deploy/chart/crds is not what the types say (run: make generate)" >&2
  bad=1
fi

mkdir "$work/externalscaler"
go run ./spec/externalscaler/gen "$work/externalscaler"
for file in "$work"/externalscaler/*; do
  if ! diff -u "spec/externalscaler/$(basename "$file")" "$file" >&2; then
    echo "spec/externalscaler/$(basename "$file") is not what externalscaler.proto says (run: make generate)" >&2
    bad=1
  fi
done

for module in . test/cluster/helm test/cluster/kube test/cluster/kuberouter test/cluster/kwok test/cluster/lws test/cluster/volcano test/fetchclients test/llmd test/modelservers; do
  if ! go -C "$module" mod tidy -diff >"$work/tidy" 2>&1; then
    cat "$work/tidy" >&2
    echo "go.mod or go.sum of $module is not tidy (run there: go mod tidy)" >&2
    bad=1
  fi
done
[ "$bad" = 0 ] && echo "verify: all as it should be"
exit "$bad"
