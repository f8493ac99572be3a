#!/usr/bin/env bash
# Builds a Debian package: build.sh ARCH BINARY LICENSES OUT, with VERSION and SOURCE_DATE_EPOCH. The same input gives the
# same bytes.
set -euo pipefail
arch=$1 binary=$2 licenses=$3 out=$4
cd "$(dirname "$0")/../../.."
here=appliance/package/debian
# Debian's versions begin with a digit and have few signs
version=$(sed -E 's/^v//; s/-/+/g; s/[^A-Za-z0-9.+~]/./g; s/^([^0-9])/0~\1/' <<<"${VERSION:-dev}")
root=$(mktemp -d)
trap 'rm -rf "$root"' EXIT
install -D -m 755 "$binary" "$root/usr/bin/1bit"
for unit in 1bit 1bit-engines; do
  install -D -m 644 "appliance/systemd/$unit.service" "$root/usr/lib/systemd/system/$unit.service"
  install -D -m 644 "$here/default-$unit" "$root/etc/default/$unit"
done
install -D -m 644 appliance/systemd/1bit.sysusers "$root/usr/lib/sysusers.d/1bit.conf"
doc=$root/usr/share/doc/1bit
install -d "$doc/licenses"
install -m 644 README.md SECURITY.md CHANGELOG.md appliance/BOX.md appliance/SERVE.md appliance/ROUTE.md "$doc/"
install -m 644 LICENSE "$doc/copyright"
install -m 644 "$licenses"/* "$doc/licenses/"
install -d "$root/DEBIAN"
install -m 755 "$here/postinst" "$here/prerm" "$here/postrm" "$root/DEBIAN/"
printf '/etc/default/1bit\n/etc/default/1bit-engines\n' > "$root/DEBIAN/conffiles"
cat > "$root/DEBIAN/control" <<CONTROL
Package: 1bit
Version: $version
Architecture: $arch
Maintainer: The 1bit authors <nobody@1bit.invalid>
Installed-Size: $(du -ks --exclude=DEBIAN "$root" | cut -f1)
Depends: systemd | systemd-standalone-sysusers, procps
Recommends: ca-certificates
Section: net
Priority: optional
Description: box that serves language models to a household or an office
 Many models behind HTTPS and HTTP/3 and the OpenAI API, with people, keys and
 quotas, in one program with one state directory. It is closed until it is
 claimed with the code that its log shows.
CONTROL
(cd "$root" && find . -path ./DEBIAN -prune -o -type f -printf '%P\n' | LC_ALL=C sort | xargs -d '\n' md5sum > DEBIAN/md5sums)
chmod 644 "$root/DEBIAN/control" "$root/DEBIAN/conffiles" "$root/DEBIAN/md5sums"
find "$root" -type d -exec chmod 755 {} +
find "$root" -exec touch -h -d "@${SOURCE_DATE_EPOCH:-0}" {} +
DPKG_DEB_THREADS_MAX=1 dpkg-deb --root-owner-group -Zxz -z2 --build "$root" "$out" >/dev/null
