#!/usr/bin/env bash
# Builds release archives into dist/: the whole program for linux amd64 and arm64, and the same program for darwin and
# windows, where its command-line parts are of use. VERSION names the release.
set -euo pipefail
cd "$(dirname "$0")/.."
version=${VERSION:-dev}
rm -rf dist && mkdir -p dist
export CGO_ENABLED=0
epoch=$(git log -1 --format=%ct 2>/dev/null || echo 0)
for t in linux/amd64 linux/arm64 darwin/arm64 darwin/amd64 windows/amd64; do
  os=${t%/*} arch=${t#*/}
  name=1bit-$version-$os-$arch
  exe=1bit
  [ "$os" = windows ] && exe=1bit.exe
  mkdir -p "dist/$name"
  GOOS=$os GOARCH=$arch go build -trimpath -ldflags "-s -w -X main.version=$version" -o "dist/$name/$exe" ./appliance
  cp README.md LICENSE CHANGELOG.md "dist/$name/"
  # one owner, one time, one order: the same commit gives the same archive
  tar -C dist --sort=name --owner=0 --group=0 --numeric-owner --mtime="@$epoch" -cf - "$name" | gzip -9n > "dist/$name.tar.gz"
  rm -rf "dist/${name:?}"
done
(cd dist && sha256sum -- *.tar.gz > SHA256SUMS && cat SHA256SUMS)
