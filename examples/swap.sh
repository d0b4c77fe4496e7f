#!/usr/bin/env bash
# Two models take turns on one GPU, by plain HTTP calls. Needs a launcher:
#
#   bin/launcher serve --gpus simulated:2
#
set -euo pipefail

api=${HOTSEAT_SERVER:-http://127.0.0.1:8001}
gpu=$(curl -sSf "$api/v2/gpus" | sed -E 's/.*"gpus":\[\{"uuid":"([^"]+)".*/\1/')

swap() {
  curl -sSN --fail-with-body -X POST "$api/v2/vllm/swap" \
    -H 'Content-Type: application/json' -H 'Accept: application/x-ndjson' -d "$1"
}

# Start one model on the free GPU, and wait until it answers.
swap '{"gpu_uuids": ["'"$gpu"'"], "in": {"id": "a", "args": ["Qwen/Qwen3-0.6B"]}}'

# Start another in its place: the first falls asleep and keeps its weights in
# the host's memory.
swap '{"gpu_uuids": ["'"$gpu"'"], "in": {"id": "b", "args": ["Qwen/Qwen3-1.7B"]}}'

# Wake the first again.
swap '{"in": {"instance_id": "a"}}'

# End both.
curl -sSf -X DELETE "$api/v2/vllm/instances"
