#!/usr/bin/env bash
# Builds release archives into dist/: the whole program for linux amd64 and arm64, and the same program for darwin and
# windows, where its command-line parts are of use. Each has the papers and the licences of what it contains. VERSION
# names the release.
set -euo pipefail
cd "$(dirname "$0")/.."
version=${VERSION:-dev}
rm -rf dist && mkdir -p dist
export CGO_ENABLED=0

# licenses OS ARCH DIR: the licence of each module that the program contains, and of Go itself
licenses() {
  local path dir file n=0
  for file in "$(go env GOROOT)/LICENSE" /usr/share/doc/golang-*-go/copyright; do # Debian has it elsewhere
    [ ! -f "$file" ] || { install -m 644 "$file" "$3/go.txt"; break; }
  done
  [ -f "$3/go.txt" ] || { echo "dist: no licence of Go" >&2; return 1; }
  while read -r path dir; do
    for file in "$dir"/LICENSE* "$dir"/NOTICE*; do
      [ ! -f "$file" ] || { install -m 644 "$file" "$3/$(tr / - <<<"$path")-$(basename "$file" .txt).txt"; n=$((n + 1)); }
    done
    compgen -G "$dir/LICENSE*" >/dev/null || { echo "dist: no licence in $path" >&2; return 1; }
  done < <(GOOS=$1 GOARCH=$2 go list -deps -f '{{with .Module}}{{if not .Main}}{{.Path}} {{.Dir}}{{end}}{{end}}' ./appliance | sort -u | grep .)
  [ "$n" -gt 0 ]
}

epoch=$(git log -1 --format=%ct 2>/dev/null || echo 0)
for t in linux/amd64 linux/arm64 darwin/arm64 darwin/amd64 windows/amd64; do
  os=${t%/*} arch=${t#*/}
  name=1bit-$version-$os-$arch
  exe=1bit
  [ "$os" = windows ] && exe=1bit.exe
  echo "building $name"
  mkdir -p "dist/$name/licenses"
  GOOS=$os GOARCH=$arch go build -trimpath -ldflags "-s -w -X main.version=$version" -o "dist/$name/$exe" ./appliance
  cp --parents README.md ARCHITECTURE.md CONTRIBUTING.md SECURITY.md LICENSE CHANGELOG.md appliance/SERVE.md engine/backend/NPU.md "dist/$name/"
  licenses "$os" "$arch" "dist/$name/licenses"
  # one owner, one time, one order: the same commit gives the same archive
  tar -C dist --sort=name --owner=0 --group=0 --numeric-owner --mode=u+rwX,go+rX,go-w --mtime="@$epoch" -cf - "$name" | gzip -9n > "dist/$name.tar.gz"
  rm -rf "dist/${name:?}"
done
(cd dist && sha256sum -- *.tar.gz > SHA256SUMS && cat SHA256SUMS)
