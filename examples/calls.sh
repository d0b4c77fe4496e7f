# shellcheck shell=bash
# calls.sh is sourced by tour.sh: the calls of the walk, and how they are shown. It
# knows api, the address of the launcher; door, that of all models; gpu, where the models run; options, of their
# command lines; and folder, for leavings.

show() { printf '\n$ %s\n' "$1"; }

# field NAME gives a string or a number of the JSON line on standard input.
field() { sed -E 's/.*"'"$1"'":"?([^",}]*).*/\1/'; }

# content gives what a model has said, of the JSON on standard input.
content() { sed -E 's/.*"content":"(([^"\\]|\\.)*)".*/\1/'; }

clock() { printf '%s' "${EPOCHREALTIME/[.,]/}"; } # in microseconds

ms() { printf '%d ms' $((($(clock) - $1) / 1000)); } # since BEGIN

# seconds MILLISECONDS
seconds() { printf '%d.%02d s' $(($1 / 1000)) $(($1 % 1000 / 10)); }

# instance ID NAME gives a field of an instance.
instance() { curl -sS --fail-with-body "$api/v2/vllm/instances/$1" | field "$2"; }

# call prints a command and runs it; its answer is kept in answer. It reads the answer from a
# file: a Ctrl-C while bash reads a long $(...) breaks its traps (bash 5.2).
call() {
  local failed=''
  show "$1"
  eval "$1" >"$folder/answer" || failed=yes
  IFS= read -r -d '' answer <"$folder/answer" || true
  [ -z "$failed" ] || fail "that call failed: $answer"
}

# create makes an instance and waits until it answers, by the watch stream.
create() { # ID MODEL [FIELDS]
  local line state='' reason now said='' began watch watcher
  began=$(clock)
  call "curl -sS --fail-with-body -X PUT $api/v2/vllm/instances/$1 -H 'Content-Type: application/json' -d '{\"args\": [\"$2\", \"--served-model-name\", \"$1\"$options], \"gpu_uuids\": [\"$gpu\"]${3:-}}'"
  show "curl -sSN '$api/v2/vllm/instances/watch?heartbeat=1s'"
  exec {watch}< <(exec curl -sSN "$api/v2/vllm/instances/watch?heartbeat=1s")
  watcher=$!
  while [ "$state" != awake ] && read -r line <&"$watch"; do
    [[ $line == *"\"instance_id\":\"$1\""* ]] || continue
    state=$(field state <<<"$line") reason=''
    [[ $line != *'"reason":'* ]] || reason=$(field reason <<<"$line")
    [ "$state" != failed ] || fail "$1 failed: $reason"
    now="$1 is $state"
    [[ $state != starting || $reason != waiting* ]] || now+=", $reason"
    [ "$now" = "$said" ] || printf '%8s  %s\n' "$(ms "$began")" "$now"
    said=$now
  done
  kill "$watcher" 2>/dev/null || true
  exec {watch}<&-
  [ "$state" = awake ] || fail "the watch stream ended before $1 was awake"
}

# question sets ask to the call that asks a model at the front door, by its name.
question() { # ID
  ask="curl -sS --fail-with-body http://$door/v1/chat/completions -H 'Content-Type: application/json' -d '{\"model\": \"$1\", \"messages\": [{\"role\": \"user\", \"content\": \"Who has the seat?\"}], \"max_tokens\": 24, \"temperature\": 0}'"
}

chat() { # ID
  local began
  began=$(clock)
  question "$1"
  call "$ask"
  took=$((($(clock) - began) / 1000))
  printf '%s answers after %d ms: %s\n' "$1" "$took" "$(content <<<"$answer")"
}

# swap puts what "in" describes on the GPU, and shows the phases as they end. The
# milliseconds that it took are kept in took.
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
      *'"outcome":"done"'*)
        end=done took=$(field total_ms <<<"$line")
        printf '  %-17s %10.1f ms\n' altogether "$took"
        took=${took%.*}
        ;;
      *) fail "the swap did not succeed: $line" ;;
    esac
  done < <(eval "$command")
  [ "$end" = done ] || fail "the stream of the swap ended early"
}
