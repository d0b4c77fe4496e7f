# shellcheck shell=bash
# progress.sh is sourced by setup.sh.

# progress reads what uv says while it installs, and tells how far it is: on a
# terminal in one line that changes, elsewhere in a line every five seconds. What it
# does not know goes through as it is.
progress() {
  local began=$SECONDS said=$SECONDS line part='' name state='asking for packages'
  local files=0 fetched=0 mib=0 fetched_mib=0 terminal=no
  local -A size
  if [ -t 2 ]; then terminal=yes; fi
  while true; do
    if IFS= read -r -t 1 line; then
      line=$part$line part=''
      read -r name _ <<<"${line#*ownload* }"
      case $line in
        *'Downloading '*)
          size[$name]=0
          [[ ! $line =~ \(([0-9]+)[0-9.]*MiB\)$ ]] || size[$name]=${BASH_REMATCH[1]}
          files=$((files + 1)) mib=$((mib + size[$name]))
          ;;
        *'Downloaded '*) fetched=$((fetched + 1)) fetched_mib=$((fetched_mib + ${size[$name]:-0})) ;;
        'Resolved '*) state="${line% in *}" ;;
        'Prepared '*) state="${line% in *}, installing them" files=0 ;;
        'Installed '*) state="${line% in *}, compiling them" files=0 ;;
        '' | Using* | Uninstalled* | Audited* | 'Bytecode compiled '* | ' '[+~-]' '*) ;;
        *)
          [ $terminal = no ] || printf '\r\033[K' >&2
          printf '%s\n' "$line" >&2
          ;;
      esac
    elif [ $? -gt 128 ]; then
      part+=$line # the second is over
    else
      break
    fi
    [ "$files" = 0 ] || state="downloaded $fetched of $files packages, $fetched_mib of $mib MiB"
    if [ $terminal = yes ]; then
      printf '\r\033[Kvllm-cpu: %s (%d s)' "${state,}" $((SECONDS - began)) >&2
    elif [ $((SECONDS - said)) -ge 5 ]; then
      said=$SECONDS
      printf 'vllm-cpu: %s (%d s)\n' "${state,}" $((SECONDS - began)) >&2
    fi
  done
  [ $terminal = no ] || printf '\r\033[K' >&2
  [ -z "$part" ] || printf '%s\n' "$part" >&2
}
