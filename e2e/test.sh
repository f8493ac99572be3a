#!/usr/bin/env bash
# Runs the tests of one kind; the Makefile calls it.
#   test.sh quick         what every change must pass
#   test.sh e2e           end-to-end tests only
#   test.sh all           quick, then the slow rest
#   test.sh bench-engine  the engine beside the reference server
#   test.sh bench-embed   the engine's embeddings beside the reference server's
#   test.sh bench-rag     the document store's speed, and what searches find
#   test.sh bench-decide  decisions on the labelled set, and what they cost
#   test.sh bench-route   what choosing a model costs, beside naming it
#   test.sh bench-cache   agents with the prompt cache and without
#   test.sh bench-proxy   serve beside other proxies
#   test.sh bench-edge    a box beside Caddy
#   test.sh bench-ext     decisions of modules beside plain wazero and Extism
set -euo pipefail
cd "$(dirname "$0")/.."
export CGO_ENABLED=0
here=e2e

say() { printf '\n== %s\n' "$*"; }

# models NAME...: obtain models before the tests need them
models() {
  bash $here/setup.sh fetch
  make --no-print-directory laya
  go build -o bin/1bit ./appliance
  for m in "$@"; do
    say "model $m"
    bin/1bit model pull "$m"
  done
  say "the sentence encoder"
  bash $here/minilm.sh
}

clients() {
  say "the official clients"
  local env
  env=$(bash $here/setup.sh clients)
  eval "$env"
}

# evaluate STEP: what setup.sh installs and says as variables
evaluate() {
  say "$1"
  local env
  env=$(bash $here/setup.sh "$1")
  eval "$env"
}

# source_tree: the reference's source, for vocabularies and templates
source_tree() {
  ONEBIT_LLAMA_SOURCE=$(bash $here/llama/build.sh source)
  export ONEBIT_LLAMA_SOURCE
}

quick() {
  say "format"
  make --no-print-directory fmt-check
  say "vet for every system"
  make --no-print-directory vet
  say "build for every system"
  make --no-print-directory laya
  for t in linux/arm64 darwin/arm64 windows/amd64; do
    GOOS=${t%/*} GOARCH=${t#*/} go build -o /dev/null ./appliance
  done
  models smollm2 all-minilm-l6-v2
  clients
  evaluate pebble
  evaluate clang
  say "levels of this machine: $(bin/1bit version --levels 2>/dev/null || true)"
  say "unit and end-to-end tests"
  go test -timeout 20m ./...
}

case "${1:-quick}" in
  quick) quick ;;
  e2e)
    models smollm2 all-minilm-l6-v2
    clients
    evaluate pebble
    go test -count=1 -timeout 20m ./e2e
    ;;
  all)
    quick
    bash $here/setup.sh units
    evaluate browsers
    evaluate guests
    models qwen2.5-coder-0.5b gemma-3-270m
    source_tree
    ONEBIT_LLAMA_BIN=$(bash $here/llama/build.sh)
    export ONEBIT_LLAMA_BIN ONEBIT_ALL=1
    say "PostgreSQL with pgvector"
    local_postgres=$(bash $here/postgres.sh start)
    eval "$local_postgres"
    trap 'bash $here/postgres.sh stop "$ONEBIT_POSTGRES_DIR"' EXIT
    say "everything, with large models, the reference server and the soak"
    go test -count=1 -timeout 60m ./...
    evaluate powercut
    say "twenty power cuts"
    go run ./e2e/powercut -kernel "$ONEBIT_KERNEL" -drivers "$ONEBIT_DRIVERS"
    say "fuzzing"
    FUZZTIME=${FUZZTIME:-20s} bash $here/fuzz.sh
    ;;
  bench-engine)
    models smollm2 qwen2.5-coder-0.5b
    ONEBIT_LLAMA_BIN=${ONEBIT_LLAMA_BIN:-$(bash $here/llama/build.sh)}
    go run ./e2e/bench -bin bin/1bit -llama "$ONEBIT_LLAMA_BIN" ${BENCH_ARGS:-}
    ;;
  bench-decide)
    file=$(bin/1bit model pull qwen2.5-coder-0.5b)
    ONEBIT_DECIDE_MODEL=$file go test ./engine/runner -run '^$' -bench Decide -benchtime 1x -v
    ;;
  bench-embed)
    ONEBIT_LLAMA_BIN=${ONEBIT_LLAMA_BIN:-$(bash $here/llama/build.sh)}
    dir=$(bash $here/minilm.sh)
    files=
    for type in Q8_0 F16; do
      bin/1bit model import "$dir" --type $type --out bin/minilm-$type.gguf >&2
      files=$files,bin/minilm-$type.gguf
    done
    go run ./e2e/benchembed -bin bin/1bit -llama "$ONEBIT_LLAMA_BIN" -models "${files#,}" ${BENCH_ARGS:-}
    ;;
  bench-rag)
    bash $here/setup.sh fetch
    go build -o bin/1bit ./appliance
    go build -o bin/ragbench ./store/documents/ragbench
    go build -o bin/ragquality ./store/documents/ragbench/quality
    say "speed"
    bin/ragbench ${BENCH_ARGS:-}
    say "quality"
    model=$(bin/1bit model pull all-minilm-l6-v2)
    bin/1bit engine -m "$model" --host 127.0.0.1 --port "${BENCH_PORT:-18470}" > bin/ragquality.log 2>&1 &
    engine=$!
    trap 'kill $engine 2> /dev/null || true' EXIT
    bin/ragquality -gate -embed "http://127.0.0.1:${BENCH_PORT:-18470}" ${RERANK:+-rerank "$RERANK"} ${QUALITY_ARGS:-}
    ;;
  bench-route)
    mkdir -p bin && go build -o bin/benchroute ./e2e/benchroute
    module=extensions/policy/files/policy.wasm
    say "what choosing adds"
    bin/benchroute -bin bin/1bit $([ ! -e $module ] || echo "-module $module -manifest extensions/policy/policy.json") ${BENCH_ARGS:-}
    say "an hour of requests in the line"
    ONEBIT_HOUR=1 go test -count=1 -timeout 30m ./appliance/pool -run '^TestHour$' -v
    ;;
  bench-cache)
    ONEBIT_LLAMA_BIN=${ONEBIT_LLAMA_BIN:-$(bash $here/llama/build.sh)}
    go run ./e2e/benchcache -bin bin/1bit -llama "$ONEBIT_LLAMA_BIN" -model "$(bin/1bit model pull qwen2.5-coder-0.5b)" ${CACHE_ARGS:-}
    ;;
  bench-proxy)
    eval "$(bash $here/setup.sh proxies)"
    go build -trimpath -ldflags '-s -w' -o bin/1bit ./appliance
    mkdir -p bin && go build -o bin/benchproxy ./e2e/benchproxy
    bin/benchproxy -bin bin/1bit -caddy "$CADDY" -litellm "$LITELLM" -litellm-missing "$LITELLM_MISSING" ${BENCH_ARGS:-}
    ;;
  bench-edge)
    eval "$(bash $here/setup.sh proxies)"
    go build -trimpath -ldflags '-s -w' -o bin/1bit ./appliance
    mkdir -p bin && go build -o bin/benchedge ./e2e/benchedge
    ulimit -n 65536 2>/dev/null || true
    bin/benchedge -bin bin/1bit -caddy "$CADDY" ${BENCH_ARGS:-}
    ;;
  bench-ext)
    evaluate clang
    mkdir -p bin/bench
    for guest in cheapest size; do
      bash extensions/build.sh one extensions/examples/$guest bin/bench/$guest.wasm
      cp extensions/examples/$guest/$guest.json bin/bench/
    done
    "$ONEBIT_CLANG" --target=wasm32 -O2 -mbulk-memory -msimd128 -nostdlib -ffreestanding -Wno-unused-function \
      -I extensions/guest/c -Wl,--no-entry -Wl,--strip-all -o bin/bench/extism.wasm extensions/bench/guest/extism.c
    laya=extensions/laya/built/files/laya.wasm
    (cd extensions/bench && go vet . && go build -o ../../bin/benchext .)
    bin/benchext -bin bin/1bit -guests bin/bench $([ ! -e $laya ] || echo "-laya $laya") ${BENCH_ARGS:-}
    ;;
  *) echo "usage: test.sh quick|e2e|all|bench-engine|bench-embed|bench-decide|bench-rag|bench-route|bench-cache|bench-proxy|bench-edge|bench-ext" >&2; exit 2 ;;
esac
