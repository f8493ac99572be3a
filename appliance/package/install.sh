#!/usr/bin/env bash
# Installs 1bit for all users of a machine, or takes it away again; the Makefile calls it.
#   install.sh install|uninstall    with PREFIX (/usr/local) and DESTDIR ("": this machine itself)
# The state of a box (/var/lib/1bit) and the users that own it are never touched.
set -euo pipefail
cd "$(dirname "$0")/../.."
prefix=${PREFIX:-/usr/local} dest=${DESTDIR:-}
case $prefix in /*) ;; *) echo "install: PREFIX=$prefix is no absolute path" >&2; exit 2 ;; esac
units=$dest$prefix/lib/systemd/system users=$dest$prefix/lib/sysusers.d doc=$dest$prefix/share/doc/1bit
papers=(README.md SECURITY.md CHANGELOG.md LICENSE appliance/BOX.md appliance/SERVE.md appliance/ROUTE.md)

# live: whether this machine itself is meant, and runs systemd
live() { [ -z "$dest" ] && [ -d /run/systemd/system ]; }

install_all() {
  [ -x "${BIN:-bin/1bit}" ] || { echo "install: there is no ${BIN:-bin/1bit}: make build comes first" >&2; exit 1; }
  install -D -m 755 "${BIN:-bin/1bit}" "$dest$prefix/bin/1bit"
  local unit
  for unit in 1bit 1bit-engines; do
    install -D -m 644 "appliance/systemd/$unit.service" "$units/$unit.service"
    sed -i "s|/usr/bin/1bit|$prefix/bin/1bit|; s|file:/usr/share|file:$prefix/share|" "$units/$unit.service"
  done
  install -D -m 644 appliance/systemd/1bit.sysusers "$users/1bit.conf"
  install -d "$doc"
  install -m 644 "${papers[@]}" "$doc/"
  if live; then
    systemd-sysusers "$users/1bit.conf"
    systemctl daemon-reload
    echo "installed; start the box with: systemctl enable --now 1bit-engines 1bit, then read its claim code: journalctl -u 1bit"
  fi
}

uninstall_all() {
  if live; then
    systemctl disable --now 1bit.service 1bit-engines.service 2>/dev/null || true
  fi
  local paper
  rm -f "$dest$prefix/bin/1bit" "$units/1bit.service" "$units/1bit-engines.service" "$users/1bit.conf"
  for paper in "${papers[@]}"; do rm -f "$doc/$(basename "$paper")"; done
  [ ! -d "$doc" ] || rmdir --ignore-fail-on-non-empty "$doc"
  if [ -n "$dest" ]; then # folders that only we have made; those of a machine are its own
    for paper in "$doc" "$units" "$users" "$dest$prefix/bin"; do
      [ ! -d "$paper" ] || rmdir -p --ignore-fail-on-non-empty "$paper" 2>/dev/null || true
    done
    for paper in "$(dirname "$doc")" "$(dirname "$units")"; do
      [ ! -d "$paper" ] || rmdir -p --ignore-fail-on-non-empty "$paper" 2>/dev/null || true
    done
  fi
  rm -rf "$dest/var/cache/1bit-engines" "$dest/run/1bit-engines"
  if live; then systemctl daemon-reload; fi
  [ ! -d "$dest/var/lib/1bit" ] || echo "the state in $dest/var/lib/1bit is left, with the user onebit"
}

case "${1:-}" in
  install) install_all ;;
  uninstall) uninstall_all ;;
  *) echo "usage: install.sh install|uninstall" >&2; exit 2 ;;
esac
