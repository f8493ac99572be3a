#!/usr/bin/env bash
# Puts PostgreSQL 17 with pgvector, from Debian 13, into a folder of the cache, starts it on a socket of its own, and
# prints the variable by which tests find it:
#   eval "$(bash e2e/postgres.sh start)"      ONEBIT_POSTGRES=DSN; and ONEBIT_POSTGRES_DIR for stop
#   bash e2e/postgres.sh stop DIR
# The package mirror is the one that this machine's apt uses. It needs root, or user namespaces.
set -euo pipefail
cache="${XDG_CACHE_HOME:-$HOME/.cache}/1bit/e2e"
root="$cache/postgres-17"

say() { printf '%s\n' "$*" >&2; }

# mirror prints what apt takes its main packages from
mirror() {
  apt-get indextargets --format '$(REPO_URI)' 'Created-By: Packages' | grep -m1 -E '/debian/?$'
}

install() {
  [ -x "$root/usr/lib/postgresql/17/bin/postgres" ] && return
  command -v mmdebstrap >/dev/null || { say "installing mmdebstrap"; apt-get install -y -qq mmdebstrap >&2; }
  local from
  from=$(mirror) || { say "apt knows no Debian mirror; PostgreSQL cannot be obtained"; exit 1; }
  say "PostgreSQL 17 with pgvector into the cache: about three minutes and 520 MB"
  rm -rf "$root" "$root.partial"
  mkdir -p "$cache"
  mmdebstrap --variant=minbase --include=postgresql-17,postgresql-17-pgvector --aptopt='Acquire::Retries "3"' --aptopt='APT::Sandbox::User "root"' \
    trixie "$root.partial" "deb $from trixie main" >&2 ||
    { say "the mirror has no Debian 13 (trixie), or it cannot be installed here"; exit 1; }
  mv "$root.partial" "$root"
}

start() {
  install
  local dir
  dir=$(mktemp -d /tmp/1bit-postgres.XXXXXX)
  mkdir -p "$root$dir" && chmod 755 "$root$dir"
  chroot "$root" chown postgres "$dir"
  local bin=/usr/lib/postgresql/17/bin
  chroot --userspec=postgres:postgres "$root" $bin/initdb -D "$dir/data" -A trust -E UTF8 --locale=C.UTF-8 >&2
  chroot --userspec=postgres:postgres "$root" $bin/pg_ctl -D "$dir/data" -w -l "$dir/log" \
    -o "-c listen_addresses='' -c unix_socket_directories=$dir -c fsync=on -c shared_buffers=128MB" start >&2
  printf 'export ONEBIT_POSTGRES=%q\n' "host=$root$dir user=postgres dbname=postgres sslmode=disable"
  printf 'export ONEBIT_POSTGRES_DIR=%q\n' "$dir"
}

stop() {
  chroot --userspec=postgres:postgres "$root" /usr/lib/postgresql/17/bin/pg_ctl -D "$1/data" -m fast stop >&2
  rm -rf "${root:?}$1" "$1"
}

case "${1:-}" in
  install) install ;;
  start) start ;;
  stop) stop "$2" ;;
  *) echo "usage: postgres.sh install|start|stop DIR" >&2; exit 2 ;;
esac
