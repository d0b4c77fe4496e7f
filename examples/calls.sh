# shellcheck shell=bash
# calls.sh is sourced by tour.sh: the calls of the walk, and how they are shown. It
# knows api, the address of the launcher; door, that of all models; gpu, where the models run; options, of their
# command lines; and folder, for leavings.

show() { printf '\n$ %s\n' "$1"; }

# The functions below set value. They start no process: a Ctrl-C while bash reads $(...) breaks
# its traps (bash 5.2).

# field NAME JSON gives a string or a number of a line.
field() {
  local pattern="\"$1\":\"?([^\",}]*)"
  value=''
  [[ ! $2 =~ $pattern ]] || value=${BASH_REMATCH[1]}
}

# content JSON gives what a model has said.
content() {
  local pattern='"content":"(([^"\\]|\\.)*)"'
  value=''
  [[ ! $1 =~ $pattern ]] || value=${BASH_REMATCH[1]}
}

clock() { value=${EPOCHREALTIME/[.,]/}; } # in microseconds

since() { clock && value=$(((value - $1) / 1000)); } # BEGIN, in milliseconds

# seconds MILLISECONDS
seconds() { printf -v value '%d.%02d s' $(($1 / 1000)) $(($1 % 1000 / 10)); }

# instance ID NAME gives a field of an instance.
instance() {
  curl -sS --fail-with-body "$api/v2/vllm/instances/$1" >"$folder/instance"
  IFS= read -r value <"$folder/instance" || true
  field "$2" "$value"
}

# call prints a command and runs it; its answer is kept in answer, read from a file.
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
  clock && began=$value
  call "curl -sS --fail-with-body -X PUT $api/v2/vllm/instances/$1 -H 'Content-Type: application/json' -d '{\"args\": [\"$2\", \"--served-model-name\", \"$1\"$options], \"gpu_uuids\": [\"$gpu\"]${3:-}}'"
  show "curl -sSN '$api/v2/vllm/instances/watch?heartbeat=1s'"
  exec {watch}< <(exec curl -sSN "$api/v2/vllm/instances/watch?heartbeat=1s")
  watcher=$!
  while [ "$state" != awake ] && read -r line <&"$watch"; do
    [[ $line == *"\"instance_id\":\"$1\""* ]] || continue
    field state "$line" && state=$value
    field reason "$line" && reason=$value
    [ "$state" != failed ] || fail "$1 failed: $reason"
    now="$1 is $state"
    [[ $state != starting || $reason != waiting* ]] || now+=", $reason"
    since "$began"
    [ "$now" = "$said" ] || printf '%8s  %s\n' "$value ms" "$now"
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
  clock && began=$value
  question "$1"
  call "$ask"
  since "$began" && took=$value
  content "$answer"
  printf '%s answers after %d ms: %s\n' "$1" "$took" "$value"
}

# swap puts what "in" describes on the GPU, and shows the phases as they end. The
# milliseconds that it took are kept in took.
swap() { # IN
  local command line phase id end=''
  command="curl -sSN -X POST $api/v2/vllm/swap -H 'Content-Type: application/json' -H 'Accept: application/x-ndjson' -d '{\"gpu_uuids\": [\"$gpu\"], \"in\": $1}'"
  show "$command"
  while read -r line; do
    case $line in
      *'"type":"phase_started"'*) ;;
      *'"type":"phase_done"'*)
        field phase "$line" && phase=$value
        field instance_id "$line" && id=$value
        field duration_ms "$line"
        printf '  %-8s %-8s %10.1f ms\n' "$phase" "$id" "$value"
        ;;
      *'"outcome":"done"'*)
        end='done'
        field total_ms "$line"
        printf '  %-17s %10.1f ms\n' altogether "$value"
        took=${value%.*}
        ;;
      *) fail "the swap did not succeed: $line" ;;
    esac
  done < <(eval "$command")
  [ "$end" = done ] || fail "the stream of the swap ended early"
}
