#!/usr/bin/env bash
# Keeps an earlier version of the server at hand as an archive of its own for apt, in a system where the release's archive lists only a
# version whose source it does not have (setup.sh ended with status 3 there). An archive's pool often still holds what an earlier point
# release listed. What apt no longer lists it cannot check by signature, which is why this is for a chroot (scripts/chroot.sh calls it
# there) and never changes a machine that somebody uses.
#
#   earlier-server.sh    status 3 where the pool has no earlier version with its source
#
# The versions are those of the package's own changelog, newest first, as far as they belong to the same series. Of the first whose
# source is there that and all packages that its description (.dsc) names are taken; set-up sees whether these suffice. They lie in
# $STRATA_CACHE/archive (/var/cache/strata), and /etc/apt/sources.list.d/strata-earlier-server.list names that folder. A second call
# finds it.
set -euo pipefail
me='earlier-server'
# shellcheck source=scripts/lib.sh
. "$(dirname "$0")/lib.sh"

archive=${STRATA_CACHE:-/var/cache/strata}/archive
list=/etc/apt/sources.list.d/strata-earlier-server.list
[ -n "${STRATA_IN_CHROOT:-}" ] || die "this is for a system that scripts/chroot.sh made: the packages are not signed"
[ ! -f "$archive/.complete" ] || exit 0

apt_get() { DEBIAN_FRONTEND=noninteractive apt-get -qq -o Dpkg::Use-Pty=0 "$@"; }
# By apt, so that its proxies hold. Quiet where the file is not there.
fetch() { /usr/lib/apt/apt-helper download-file "$1" "$2" >/dev/null 2>&1; }

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
arch=$(dpkg --print-architecture)
# Single quotes: apt fills it in.
# shellcheck disable=SC2016
site=$(apt-get indextargets --format '$(SITE)' 'Created-By: Packages' | sort -u | grep -v security | head -n 1)
pool=$site/pool/main/m/mariadb
newest=$(apt-cache madison mariadb-common | awk -F' *[|] *' '{ print $2 }' | sort -Vru | head -n 1)
[ -n "$newest" ] || die "apt knows no MariaDB here"
series=$(sed -E 's/^([0-9]+:)?([0-9]+\.[0-9]+)\..*/\2/' <<<"$newest")

# The changelog comes with the smallest of the packages.
(cd "$work" && apt_get -o APT::Sandbox::User=root download "mariadb-common=$newest")
dpkg-deb --fsys-tarfile "$work"/mariadb-common_*.deb |
  tar -xO ./usr/share/doc/mariadb-common/changelog.Debian.gz | zcat >"$work/changelog"
mapfile -t versions < <(sed -nE 's/^mariadb \(([^)]*)\).*/\1/p' "$work/changelog" |
  grep -E "^([0-9]+:)?${series//./\\.}\." | grep -vxF "$newest")

# take VERSION: its source and those of its packages that are there, into $work/archive; fails where the source is not there.
take() {
  local version=$1 file=${1#*:} sum name kind rest to=$work/archive
  rm -rf "$to"
  mkdir -p "$to"
  fetch "$pool/mariadb_$file.dsc" "$to/mariadb_$file.dsc" || return 1
  say "taking mariadb $version from the pool"
  while read -r sum _ name; do
    fetch "$pool/$name" "$to/$name" || return 1
    [ "$(sha256sum "$to/$name" | cut -d' ' -f1)" = "$sum" ] || die "$pool/$name is not what its description says"
  done < <(sed -n '/^Checksums-Sha256:/,/^[^ ]/{/^ /p}' "$to/mariadb_$file.dsc")
  while read -r name kind _ _ rest; do
    [ "$kind" = deb ] || continue
    case $rest in
      *arch=all*) rest=all ;;
      *arch=any* | *"$arch"*) rest=$arch ;;
      *) continue ;;
    esac
    fetch "$pool/${name}_${file}_$rest.deb" "$to/${name}_${file}_$rest.deb" || rm -f "$to/${name}_${file}_$rest.deb"
  done < <(sed -n '/^Package-List:/,/^[^ ]/{/^ /p}' "$to/mariadb_$file.dsc")
}

for version in "${versions[@]}"; do
  take "$version" || continue
  cd "$work/archive"
  dpkg-scanpackages --multiversion . >Packages 2>/dev/null
  dpkg-scansources . >Sources 2>/dev/null
  : >.complete
  mkdir -p "$(dirname "$archive")"
  rm -rf "$archive"
  chmod 755 "$work/archive"
  mv "$work/archive" "$archive"
  printf 'deb [trusted=yes] file:%s ./\ndeb-src [trusted=yes] file:%s ./\n' "$archive" "$archive" >"$list"
  apt_get update
  say "mariadb $version lies in $archive"
  exit 0
done
say "the pool has no earlier version of MariaDB $series with its source (asked for: ${versions[*]:-none})" >&2
exit 3
