#!/usr/bin/env bash
# Tries a device of this box with a model; `make e2e-device DEVICE= MODEL=` calls it. From the environment:
#   DEVICE        vulkan, hrx, rocm, cpu, npu, ... or auto (required)
#   MODEL         the model's path, or its name in the catalogue (required)
#   LLAMA_SERVER  the llama-server to use; empty: the one that serve finds
#   EXPECT        a word that the answer must contain (Paris); "-" for none, as with a model of random weights
#   QUESTION      what is asked (Which city is the capital of France?)
#   PARALLEL      slots, and clients at once (4)
#   LOADS         starts and stops at the end (3)
#   EMBED         a model for /v1/embeddings beside it
#   BOX           0: don't try it in a box too, with the server in its sandbox; as root also behind `1bit engines`, as a
#                 user of its own (then everybody must be able to read the model and to run the llama-server)
#   KILL          0: don't kill the child in the middle of an answer
#   RECORD        file to which a line with the results is added (e2e/device/record.txt)
#   DEVICE_BIN    a built e2e/device, and ONEBIT_BIN our program, where there is no Go
set -euo pipefail
cd "$(dirname "$0")/.."
: "${DEVICE:?say which device, as in: make e2e-device DEVICE=vulkan MODEL=/models/some.gguf}"
: "${MODEL:?say which model, as in: make e2e-device DEVICE=vulkan MODEL=/models/some.gguf}"
export CGO_ENABLED=0
run=${DEVICE_BIN:-}
if [ -z "$run" ]; then
  run=bin/e2e-device
  go build -o "$run" ./e2e/device
fi
expect=${EXPECT:-Paris}
[ "$expect" != - ] || expect=
bin=${ONEBIT_BIN:-bin/1bit}
[ -e "$MODEL" ] || [ "$DEVICE" = mlx ] || MODEL=$("$bin" model pull "$MODEL")
args=(-bin "$bin" -device "$DEVICE" -model "$MODEL" -expect "$expect"
  -parallel "${PARALLEL:-4}" -loads "${LOADS:-3}" -record "${RECORD:-e2e/device/record.txt}")
[ -z "${LLAMA_SERVER:-}" ] || args+=(-llama-server "$LLAMA_SERVER")
[ -z "${QUESTION:-}" ] || args+=(-question "$QUESTION")
[ -z "${EMBED:-}" ] || args+=(-embed "$EMBED")
[ "${BOX:-1}" = 0 ] || args+=(-box)
[ "${KILL:-1}" = 0 ] || args+=(-kill)
exec "$run" "${args[@]}"
