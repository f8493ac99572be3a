#!/usr/bin/env bash
# Builds guests.
#   build.sh one FOLDER OUT.wasm   the guest in a folder; the name of its source says the language
#   build.sh built                 those that the program carries: the classifier and the policy
#   build.sh all FOLDER            every example into a folder, each beside its manifest
# The compilers of C, Rust and AssemblyScript are those that e2e/setup.sh found: ONEBIT_CLANG, ONEBIT_RUSTC, ONEBIT_ASC.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)

one() {
  local dir=$1 out=$2
  if [ -e "$dir/main.go" ]; then
    (cd "$dir" && GOOS=wasip1 GOARCH=wasm GOFLAGS='' go build -buildvcs=false -buildmode=c-shared -trimpath -ldflags='-s -w' -o "$out" .)
  elif [ -e "$dir/policy.c" ]; then
    ${ONEBIT_CLANG:-clang} --target=wasm32 -O2 -mbulk-memory -msimd128 -nostdlib -ffreestanding -Wall -Wextra -Werror -Wno-unused-function \
      -I "$here/guest/c" -Wl,--no-entry -Wl,--strip-all -o "$out" "$dir/policy.c"
  elif [ -e "$dir/policy.rs" ]; then
    ${ONEBIT_RUSTC:-rustc} --edition 2021 --target wasm32-unknown-unknown --crate-type cdylib -C opt-level=3 -C panic=abort -C lto \
      -C strip=symbols -C link-arg=-zstack-size=65536 -o "$out" "$dir/policy.rs"
  elif [ -e "$dir/policy.ts" ]; then
    (cd "$dir" && ${ONEBIT_ASC:-asc} policy.ts --runtime stub --optimizeLevel 3 --use abort= -o "$out")
  else
    echo "build: $dir has no main.go, policy.c, policy.rs or policy.ts" >&2
    return 1
  fi
}

all() {
  mkdir -p "$1"
  local to dir name
  to=$(cd "$1" && pwd)
  for dir in "$here"/examples/*/; do
    name=$(basename "$dir")
    one "${dir%/}" "$to/$name.wasm"
    cp "$dir/$name.json" "$to/$name.json"
    printf '%8d bytes  %s\n' "$(wc -c < "$to/$name.wasm")" "${to#"$PWD"/}/$name.wasm"
  done
}

built() {
  one "$here/laya/guest" "$here/laya/built/files/laya.wasm"
  (cd "$here/.." && GOOS='' GOARCH='' GOFLAGS='' go run ./extensions/policy/compile extensions/policy/guest/policy.go extensions/policy/files/policy.wasm)
}

case "${1:-}" in
  built) built ;;
  one) one "$(cd "$2" && pwd)" "$(cd "$(dirname "$3")" && pwd)/$(basename "$3")" ;;
  all) all "$2" ;;
  *) echo "usage: build.sh one FOLDER OUT.wasm | built | all FOLDER" >&2; exit 2 ;;
esac
