#!/usr/bin/env bash
# The Debian package mariadb-plugin-strata, for the MariaDB that set-up found: target/deb/mariadb-plugin-strata_VERSION_ARCH.deb, and
# beside it what lintian says, which must be nothing.
#
# VERSION is the version of Strata with the server's behind it, 0.1.0+mariadb10.11.18-0+deb12u1: one made for a newer server replaces
# one for an older. Environment:
#   STRATA_DEB_REVISION   what follows it, as +b1 for a package of the same sources made anew
set -euo pipefail
me=deb
# shellcheck source=scripts/lib.sh
. "$(dirname "$0")/lib.sh"
cd "$top"
"$top/scripts/setup.sh" deb
load_env

build=$top/target/deb/build
version=$(sed -n 's/^version = "\(.*\)"$/\1/p' Cargo.toml | head -n 1)
version+=+mariadb${MARIADB_PACKAGE_VERSION#*:}${STRATA_DEB_REVISION:-}
version=${version//+ds-/-}

make --no-print-directory plugin
cargo build --release -p strata-tool -p strata-backup

rm -rf "$build"
mkdir -p "$build"
cp -r packaging/debian "$build/debian"
SOURCE_DATE_EPOCH=$(git log -1 --format=%ct 2>/dev/null || stat -c %Y Cargo.toml)
export SOURCE_DATE_EPOCH
cat >"$build/debian/changelog" <<TXT
strata ($version) $(. /etc/os-release && printf '%s' "$VERSION_CODENAME"); urgency=medium

  * Made from a checkout for MariaDB ${MARIADB_PACKAGE_VERSION#*:}.

 -- The Strata authors <strata@packages.invalid>  $(date -u -R -d "@$SOURCE_DATE_EPOCH")
TXT
rm -f target/deb/*"_${version}_"*.deb
log=$top/target/deb/build.log
if ! (cd "$build" && TOP=$top MARIADB_PACKAGE_VERSION=$MARIADB_PACKAGE_VERSION fakeroot debian/rules binary) >"$log" 2>&1; then
  tail -n 40 "$log" >&2
  die "debhelper failed; its output is in target/deb/build.log"
fi
deb=$(find target/deb -maxdepth 1 -name "mariadb-plugin-strata_${version}_*.deb")
[ -f "$deb" ] || die "debhelper left no package; its output is in target/deb/build.log"
lintian --allow-root --tag-display-limit 0 --fail-on error,warning "$deb" || die "lintian has found faults in $deb"
say "$deb, for mariadb-server-core $MARIADB_PACKAGE_VERSION"
