#!/usr/bin/env bash
# building.sh NAME go build ARGUMENT... PACKAGE builds a program, and says how far it
# is: on a terminal in one line that changes, elsewhere in a line every ten seconds.
# What else the compiler says goes through as it is.
set -euo pipefail

name=$1
shift
began=$SECONDS
downloaded=0 compiled=0 stale='' said=0
terminal=no
if [ -t 2 ]; then terminal=yes; fi

# state tells how far the build is.
state() {
  local text="building $name"
  if [ "$compiled" -gt 0 ]; then
    text+=": $compiled"
    [ -z "$stale" ] || text+=" of $((stale > compiled ? stale : compiled))"
    text+=" packages compiled"
  elif [ "$downloaded" -gt 0 ]; then
    text+=": $downloaded modules downloaded"
  fi
  printf '%s (%d s)' "$text" $((SECONDS - began))
}

say() {
  if [ $terminal = yes ]; then
    printf '\r\033[K%s' "$(state)" >&2
  elif [ $((SECONDS - said)) -ge 10 ]; then
    said=$SECONDS
    printf '%s\n' "$(state)" >&2
  fi
}

# count_stale has all packages counted that are to be compiled, beside the build: the
# cache knows which they are.
count_stale() {
  local argument arguments=()
  while [ $# -gt 0 ]; do
    argument=$1
    shift
    if [ "$argument" = -o ]; then
      shift
    else
      arguments+=("$argument")
    fi
  done
  exec {counter}< <("$go" list -deps -f '{{if .Stale}}{{.ImportPath}}{{end}}' "${arguments[@]}" 2>/dev/null | grep -c .)
}

# hear reads a line of the build.
hear() {
  case $1 in
    'go: downloading '*) downloaded=$((downloaded + 1)) ;;
    '' | *[!A-Za-z0-9._/~@+-]*)
      [ $terminal = no ] || printf '\r\033[K' >&2
      printf '%s\n' "$1" >&2
      ;;
    *)
      compiled=$((compiled + 1))
      [ "$compiled" != 1 ] || count_stale "${build[@]}"
      ;;
  esac
}

go=$1
shift 2 # go build
build=("$@")
said=$SECONDS
if [ $terminal = yes ]; then say; else printf 'building %s\n' "$name" >&2; fi
exec {lines}< <(exec "$go" build -v "${build[@]}" 2>&1)
builder=$!
trap 'kill "$builder" 2>/dev/null || true' EXIT
trap 'exit 130' INT
trap 'exit 143' TERM
counter=''
part=''
while true; do
  if IFS= read -r -t 1 line <&"$lines"; then
    hear "$part$line"
    part=''
  elif [ $? -gt 128 ]; then
    part+=$line # the second is over
  else
    break
  fi
  if [ -n "$counter" ] && [ -z "$stale" ] && read -r -t 0 <&"$counter"; then
    read -r stale <&"$counter" || stale=0
    stale=$((stale + compiled))
  fi
  say
done
[ -z "$part" ] || hear "$part"
status=0
wait "$builder" || status=$?
[ $terminal = no ] || printf '\r\033[K' >&2
if [ "$status" = 0 ]; then
  printf 'built %s in %d s\n' "$name" $((SECONDS - began)) >&2
fi
exit $status
