#!/usr/bin/env bash
# Installs what a step needs on a machine that lacks it, from the package sources
# that the machine is configured with.
#   setup.sh build     Go
#   setup.sh fetch     what `1bit model pull` may need: python3 with pip
#   setup.sh clients   a Python environment and a node_modules folder with the official clients;
#                      prints PY=... and NODE_PATH=... for the tests
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
  $sudo apt-get update -qq >&2 && DEBIAN_FRONTEND=noninteractive $sudo apt-get install -y -qq "$@" >&2
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

clients() {
  need_python
  local venv="$cache/e2e/python-$(sha256sum "$here/clients/requirements.txt" | cut -c1-12)"
  if [ ! -x "$venv/bin/python" ] || ! "$venv/bin/python" -c 'import openai' 2>/dev/null; then
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

case "${1:-}" in
  build) need_go ;;
  fetch) need_python ;;
  clients) clients ;;
  *) echo "usage: setup.sh build|fetch|clients" >&2; exit 2 ;;
esac
