#!/usr/bin/env bash
# Builds releases into dist/: archives of the whole program for linux amd64 and arm64, and of the same program for darwin
# and windows, where its command-line parts are of use; Debian packages and a container image for linux. Each has the
# papers and the licences of what it contains. VERSION names the release, SOURCE_DATE_EPOCH its time (the commit's): the
# same commit gives the same files. DIST_TARGETS lists fewer systems, such as "linux/amd64".
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
    for file in "$dir"/LICENSE* "$dir"/License* "$dir"/NOTICE*; do
      [ ! -f "$file" ] || { install -m 644 "$file" "$3/$(tr / - <<<"$path")-$(basename "$file" .txt).txt"; n=$((n + 1)); }
    done
    { compgen -G "$dir/LICENSE*" || compgen -G "$dir/License*"; } >/dev/null || { echo "dist: no licence in $path" >&2; return 1; }
  done < <(GOOS=$1 GOARCH=$2 go list -deps -f '{{with .Module}}{{if not .Main}}{{.Path}} {{.Dir}}{{end}}{{end}}' ./appliance | sort -u | grep .)
  [ "$n" -gt 0 ]
}

epoch=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct 2>/dev/null || echo 0)}
export SOURCE_DATE_EPOCH=$epoch VERSION=$version
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
programs=()
bash extensions/build.sh built
for t in ${DIST_TARGETS:-linux/amd64 linux/arm64 darwin/arm64 darwin/amd64 windows/amd64}; do
  os=${t%/*} arch=${t#*/}
  name=1bit-$version-$os-$arch
  exe=1bit
  [ "$os" = windows ] && exe=1bit.exe
  echo "building $name"
  mkdir -p "dist/$name/licenses"
  GOOS=$os GOARCH=$arch go build -trimpath -ldflags "-s -w -X main.version=$version" -o "dist/$name/$exe" ./appliance
  cp --parents README.md ARCHITECTURE.md CONTRIBUTING.md SECURITY.md LICENSE CHANGELOG.md appliance/SERVE.md appliance/BOX.md appliance/ROUTE.md engine/backend/NPU.md "dist/$name/"
  licenses "$os" "$arch" "dist/$name/licenses"
  # one owner, one time, one order: the same commit gives the same archive
  tar -C dist --sort=name --owner=0 --group=0 --numeric-owner --mode=u+rwX,go+rX,go-w --mtime="@$epoch" -cf - "$name" | gzip -9n > "dist/$name.tar.gz"
  if [ "$os" = linux ]; then
    mv "dist/$name/1bit" "$work/1bit-$arch"
    programs+=("$arch=$work/1bit-$arch")
    if command -v dpkg-deb >/dev/null; then
      echo "packing 1bit-$version-$arch.deb"
      bash appliance/package/debian/build.sh "$arch" "$work/1bit-$arch" "dist/$name/licenses" "dist/1bit-$version-$arch.deb"
    else
      echo "dist: no Debian package: this machine has no dpkg-deb" >&2
    fi
  fi
  rm -rf "dist/${name:?}"
done
if [ ${#programs[@]} -gt 0 ]; then
  echo "packing 1bit-$version-oci.tar"
  go run ./appliance/package/oci/write -version "$version" -epoch "$epoch" -o "dist/1bit-$version-oci.tar" "${programs[@]}"
fi
(cd dist && sha256sum -- 1bit-* > SHA256SUMS && cat SHA256SUMS)
