#!/usr/bin/env bash
# Takes back what scripts/setup.sh changed on this machine, by the records in /var/lib/strata-setup; a second run finds
# nothing to do. Packages go that were not there before, unless a package that set-up did not bring needs them.
# Packages that were replaced by another version are named, with the command that brings the old one back.
#
# Kept: /var/lib/mysql, the data of the system's server, which set-up never starts. The checkout's own files are the matter
# of 'make distclean'.
set -euo pipefail
me=uninstall
# shellcheck source=scripts/lib.sh
. "$(dirname "$0")/lib.sh"

records=/var/lib/strata-setup
files=(/etc/apt/sources.list.d/strata-src.sources /etc/apt/sources.list.d/strata-src.list
  /etc/apt/preferences.d/strata-mariadb.pref)
cache=/var/cache/strata

there=0
for f in "$records" "$cache" "${files[@]}"; do
  if [ -e "$f" ]; then there=1; fi
done
if [ $there = 0 ]; then
  say "set-up has changed nothing on this machine, or it is taken back already"
  exit 0
fi
[ "$(id -u)" = 0 ] || die "run this as root: sudo make uninstall"

apt_get() { DEBIAN_FRONTEND=noninteractive apt-get -qq -o Dpkg::Use-Pty=0 "$@"; }
# Of the packages named on the standard input those that are installed.
still_installed() {
  while read -r pkg; do
    dpkg-query -W -f='${db:Status-Abbrev} ${Package}:${Architecture}\n' "$pkg" 2>/dev/null |
      awk '$1 != "un" { print $2 }' || true
  done | sort -u
}
# What apt would remove with the packages of file $1, one "name:architecture" a line.
would_remove() {
  xargs -r apt-get -s purge <"$1" 2>/dev/null | awk '$1 == "Purg" || $1 == "Remv" { print $2 }' |
    while read -r pkg; do dpkg-query -W -f='${Package}:${Architecture}\n' "$pkg" 2>/dev/null || true; done | sort -u
}

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
if [ -f "$records/packages" ]; then
  still_installed <"$records/packages" >"$work/ours"
  cp "$work/ours" "$work/go"
  # What others need stays: whoever would go with ours, without being ours, keeps what it depends on.
  while [ -s "$work/go" ]; do
    would_remove "$work/go" >"$work/plan"
    comm -13 "$work/ours" "$work/plan" >"$work/others"
    [ -s "$work/others" ] || break
    xargs apt-cache depends --installed --recurse --no-suggests --no-conflicts --no-breaks --no-replaces --no-enhances \
      <"$work/others" | grep -E '^[a-z0-9]' | still_installed >"$work/needed"
    comm -23 "$work/go" "$work/needed" >"$work/less"
    if cmp -s "$work/less" "$work/go"; then
      die "these packages would go too, though set-up did not install them:" "$(tr '\n' ' ' <"$work/others")" \
        "Nothing was removed."
    fi
    mv "$work/less" "$work/go"
  done
  comm -23 "$work/ours" "$work/go" >"$work/kept"
  if [ -s "$work/kept" ]; then say "kept, since other packages need them: $(tr '\n' ' ' <"$work/kept")"; fi
  if [ -s "$work/go" ]; then
    say "removing $(wc -l <"$work/go") packages"
    xargs env DEBIAN_FRONTEND=noninteractive apt-get -qq -o Dpkg::Use-Pty=0 purge -y <"$work/go" >"$work/log" 2>&1 ||
      die "apt-get purge failed:" "$(tail -n 20 "$work/log")"
  fi
else
  say "there is no record of packages (an older set-up made none): they stay"
fi
replaced=
if [ -s "$records/replaced" ]; then replaced=$(awk '{ printf " %s=%s", $1, $2 }' "$records/replaced"); fi
for f in "${files[@]}"; do
  if [ -e "$f" ]; then
    say "removing $f"
    rm -f "$f"
  fi
done
for f in "$cache" "$records"; do
  if [ -e "$f" ]; then
    say "removing $f"
    rm -rf "$f"
  fi
done
if [ -n "$replaced" ]; then
  say "set-up replaced these versions; to have the former ones back: apt-get install --allow-downgrades$replaced"
fi
if [ -d /var/lib/mysql ]; then say "left as it is: /var/lib/mysql, the data of the system's own server"; fi
