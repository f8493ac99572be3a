#!/usr/bin/env bash
# Installs what a step needs on a machine that lacks it, from the package sources
# that the machine is configured with.
#   setup.sh build     Go
#   setup.sh fetch     what `1bit model pull` may need: python3 with pip
#   setup.sh compilers what builds the reference llama-server: cmake, ninja and a C++ compiler
#   setup.sh text      a long text in the public domain: the program `bible`
#   setup.sh clients   a Python environment and a node_modules folder with the official clients;
#                      prints PY=... and NODE_PATH=... for the tests
#   setup.sh pebble    the ACME server that certificates are tested with; prints ONEBIT_PEBBLE=...
#   setup.sh browsers  Chromium with its certificate tool, and a curl that speaks HTTP/3; prints ONEBIT_CHROMIUM=...
#                      ONEBIT_CURL_HTTP3=...
#   setup.sh powercut  an emulator and a kernel for the machine whose power is cut; prints ONEBIT_KERNEL=... ONEBIT_DRIVERS=...
#   setup.sh units     what looks at the units and packages: systemd and dpkg
#   setup.sh clang     what builds modules in C: clang and its linker for WebAssembly; prints ONEBIT_CLANG=...
#   setup.sh guests    that, Rust with its library for WebAssembly, and AssemblyScript; prints ONEBIT_CLANG=... ONEBIT_RUSTC=...
#                      ONEBIT_ASC=...
#   setup.sh proxies   the proxies that serve is measured beside: Caddy and LiteLLM; prints CADDY=... LITELLM=...
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
cache="${XDG_CACHE_HOME:-$HOME/.cache}/1bit"

apt_install() {
  local sudo=""
  if [ "$(id -u)" != 0 ]; then
    command -v sudo >/dev/null || { echo "setup: please install: $*" >&2; return 1; }
    sudo="sudo -n"
  fi
  command -v apt-get >/dev/null || { echo "setup: please install: $*" >&2; return 1; }
  $sudo apt-get update -qq >&2 && $sudo env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq "$@" >&2
}

need_go() {
  command -v go >/dev/null || apt_install golang-go
  # Debian's Go may be older than go.mod asks for: let it fetch the newer toolchain.
  if ! go version | grep -qE 'go1\.(2[6-9]|[3-9][0-9])'; then
    GOTOOLCHAIN=auto go version | grep -qE 'go1\.(2[6-9]|[3-9][0-9])' || {
      echo "setup: Go 1.26 or newer is needed; this machine has $(go version)" >&2; exit 1; }
  fi
  command -v git >/dev/null || apt_install git
}

need_python() {
  python3 -m pip --version >/dev/null 2>&1 || apt_install python3 python3-pip
}

need_compilers() {
  { command -v cmake && command -v ninja && command -v g++; } >/dev/null || apt_install cmake ninja-build g++
}

need_text() {
  command -v bible >/dev/null || apt_install bible-kjv
}

clients() {
  need_python
  local venv="$cache/e2e/python-$(sha256sum "$here/clients/requirements.txt" | cut -c1-12)"
  if [ ! -x "$venv/bin/python" ] || ! "$venv/bin/python" -c 'import openai, anthropic' 2>/dev/null; then
    rm -rf "$venv"
    python3 -m venv "$venv" >&2 || { apt_install python3-venv && python3 -m venv "$venv" >&2; }
    "$venv/bin/python" -m pip install -q --disable-pip-version-check -r "$here/clients/requirements.txt" >&2
  fi
  command -v npm >/dev/null || apt_install nodejs npm
  local node="$cache/e2e/node-$(sha256sum "$here/clients/package.json" | cut -c1-12)"
  if [ ! -d "$node/node_modules/openai" ]; then
    rm -rf "$node"; mkdir -p "$node"
    cp "$here/clients/package.json" "$node/"
    (cd "$node" && npm install --no-audit --no-fund --no-package-lock --silent >&2)
  fi
  echo "export ONEBIT_E2E_PYTHON='$venv/bin/python' ONEBIT_E2E_NODE_DIR='$node'"
}

caddy_version=v2.11.9
litellm_version=1.110.2

# What LiteLLM's proxy imports. Its extra "proxy" names further packages, some of which not every package source has.
litellm_needs=(uvicorn uvloop fastapi 'starlette>=1.0.1,<2.0' backoff pyyaml orjson 'apscheduler>=3.11.2,<4.0' fastapi-sso pyjwt
  python-multipart cryptography pynacl websockets rich rq restrictedpython 'mcp>=2.3.0,<3' litellm-proxy-extras inquirerpy tomlkit
  soundfile semver expression hiredis 'httpx2>=2.10.0,<3')

proxies() {
  local caddy="$cache/tools/caddy-$caddy_version/caddy" venv="$cache/tools/litellm-$litellm_version" why=""
  if [ ! -x "$caddy" ]; then
    echo "setup: building Caddy $caddy_version, which takes minutes" >&2
    GOBIN="${caddy%/caddy}" GOFLAGS='' CGO_ENABLED=0 go install "github.com/caddyserver/caddy/v2/cmd/caddy@$caddy_version" >&2 || caddy=""
  fi
  if ! "$venv/bin/python" -c 'import litellm.proxy.proxy_server' >/dev/null 2>&1; then
    need_python
    rm -rf "$venv"
    { python3 -m venv "$venv" && { "$venv/bin/python" -m pip install -q "litellm[proxy]==$litellm_version" ||
      "$venv/bin/python" -m pip install -q "litellm==$litellm_version" "${litellm_needs[@]}"; }; } >&2 || why="it cannot be installed from this machine's package source"
    [ -n "$why" ] || "$venv/bin/python" -c 'import litellm.proxy.proxy_server' >&2 || why="it was installed but does not start"
  fi
  printf "CADDY='%s' LITELLM='%s' LITELLM_MISSING='%s'\n" "$caddy" "$([ -n "$why" ] || echo "$venv/bin/litellm")" "$why"
}

pebble_version=v2.10.3

pebble() {
  local dir="$cache/tools/pebble-$pebble_version"
  if [ ! -x "$dir/pebble" ]; then
    echo "setup: building pebble $pebble_version" >&2
    GOBIN="$dir" GOFLAGS='' CGO_ENABLED=0 go install "github.com/letsencrypt/pebble/v2/cmd/pebble@$pebble_version" >&2
  fi
  echo "export ONEBIT_PEBBLE='$dir/pebble'"
}

# curl_http3: Debian 12's curl has no HTTP/3, Debian 13's has. It is unpacked with its libraries and its own loader, and
# touches nothing of the system.
curl_http3() {
  local dir="$cache/tools/curl-http3" loader
  if [ ! -x "$dir/curl" ]; then
    command -v mmdebstrap >/dev/null || apt_install mmdebstrap
    rm -rf "$dir"; mkdir -p "$dir"
    echo "setup: unpacking a curl with HTTP/3" >&2
    mmdebstrap --quiet --variant=extract --include=curl trixie "$dir/root" >&2
    loader=$(echo "$dir"/root/usr/lib/*-linux-gnu*/ld-linux-*.so.*)
    printf '#!/bin/sh\nexec "%s" --library-path "%s" "%s" "$@"\n' "$loader" "$(dirname "$loader")" "$dir/root/usr/bin/curl" > "$dir/curl"
    chmod +x "$dir/curl"
  fi
  "$dir/curl" --version | grep -q HTTP3 || { echo "setup: $dir/curl has no HTTP/3" >&2; return 1; }
  echo "export ONEBIT_CURL_HTTP3='$dir/curl'"
}

browsers() {
  command -v chromium >/dev/null || apt_install chromium
  command -v certutil >/dev/null || apt_install libnss3-tools
  echo "export ONEBIT_CHROMIUM='$(command -v chromium)'"
  curl_http3
}

# powercut: Debian's kernel for virtual machines is unpacked into the cache and not installed: it must not become this
# machine's own.
powercut() {
  export PATH="$PATH:/usr/sbin:/sbin"
  { command -v qemu-system-x86_64 && command -v mkfs.ext4 && command -v depmod && apt-cache show linux-image-cloud-amd64; } >/dev/null 2>&1 ||
    apt_install --no-install-recommends qemu-system-x86 e2fsprogs kmod
  local package dir base
  package=$(apt-cache depends linux-image-cloud-amd64 | sed -n 's/^ *Depends: //p' | head -n 1)
  [ -n "$package" ] || { echo "setup: this machine's package source has no linux-image-cloud-amd64" >&2; return 1; }
  dir="$cache/e2e/$package"
  if [ ! -e "$dir/drivers/modules.dep" ]; then
    rm -rf "$dir"; mkdir -p "$dir"
    (cd "$dir" && apt-get download -qq "$package" >&2 && dpkg-deb -x "$package"_*.deb root && rm "$package"_*.deb)
    base="$dir/root"
    [ -d "$base/lib/modules" ] || base="$dir/root/usr"
    depmod -b "$base" "${package#linux-image-}"
    ln -s "$base/lib/modules/${package#linux-image-}" "$dir/drivers"
  fi
  echo "export PATH='$PATH' ONEBIT_KERNEL='$dir/root/boot/vmlinuz-${package#linux-image-}' ONEBIT_DRIVERS='$dir/drivers'"
}

units() {
  { command -v systemd-analyze && command -v dpkg-deb; } >/dev/null || apt_install --no-install-recommends systemd dpkg
}

# makes_wasm COMMAND: does it make WebAssembly of a C file?
makes_wasm() {
  echo 'int f(void) { return 1; }' | "$1" --target=wasm32 -nostdlib -Wl,--no-entry -x c - -o /dev/null 2>/dev/null
}

need_clang() {
  local c
  for c in clang-19 clang; do
    if makes_wasm "$c"; then echo "export ONEBIT_CLANG='$c'"; return; fi
  done
  apt_install --no-install-recommends clang-19 lld-19 || apt_install --no-install-recommends clang lld
  for c in clang-19 clang; do
    if makes_wasm "$c"; then echo "export ONEBIT_CLANG='$c'"; return; fi
  done
  echo "setup: no clang on this machine makes WebAssembly: please install clang and lld" >&2
  return 1
}

# rust_for_wasm COMMAND: prints the command if it has the library for WebAssembly. A distribution's Rust looks for a linker
# that it does not have.
rust_for_wasm() {
  local dir
  dir=$("$1" --print target-libdir --target wasm32-unknown-unknown 2>/dev/null) && ls "$dir"/libstd-*.rlib >/dev/null 2>&1 || return 1
  if echo '#[no_mangle] pub extern "C" fn f() {}' | "$1" --target wasm32-unknown-unknown --crate-type cdylib -o "$cache/probe.wasm" - 2>/dev/null; then
    echo "$1"
    return
  fi
  local l
  for l in wasm-ld-19 wasm-ld wasm-ld-14; do
    command -v "$l" >/dev/null || continue
    echo "$1 -C linker=$l -C link-arg=--no-fatal-warnings"
    return
  done
  return 1
}

need_rust() {
  mkdir -p "$cache"
  local r
  for r in rustc /usr/bin/rustc; do
    if r=$(rust_for_wasm "$r"); then echo "export ONEBIT_RUSTC='$r'"; return; fi
  done
  apt_install --no-install-recommends rustc libstd-rust-dev-wasm32 lld
  for r in /usr/bin/rustc rustc; do
    if r=$(rust_for_wasm "$r"); then echo "export ONEBIT_RUSTC='$r'"; return; fi
  done
  echo "setup: no rustc on this machine has its library for wasm32-unknown-unknown: rustup target add wasm32-unknown-unknown" >&2
  return 1
}

assemblyscript_version=0.28.20

need_asc() {
  command -v npm >/dev/null || apt_install nodejs npm
  local dir="$cache/tools/assemblyscript-$assemblyscript_version"
  if [ ! -x "$dir/node_modules/.bin/asc" ]; then
    rm -rf "$dir"; mkdir -p "$dir"
    (cd "$dir" && npm init -y >/dev/null && npm install --no-audit --no-fund --silent "assemblyscript@$assemblyscript_version" >&2)
  fi
  echo "export ONEBIT_ASC='$dir/node_modules/.bin/asc'"
}

case "${1:-}" in
  build) need_go ;;
  fetch) need_python ;;
  compilers) need_compilers ;;
  text) need_text ;;
  clients) clients ;;
  pebble) pebble ;;
  browsers) browsers ;;
  powercut) powercut ;;
  proxies) proxies ;;
  clang) need_clang ;;
  guests) need_clang; need_rust; need_asc ;;
  units) units ;;
  *) echo "usage: setup.sh build|fetch|compilers|text|clients|pebble|browsers|powercut|clang|guests|proxies|units" >&2; exit 2 ;;
esac
