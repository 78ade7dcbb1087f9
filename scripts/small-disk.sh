#!/usr/bin/env bash
# A small file system in memory, for tests that fill a disk. Needs root.
#
#   small-disk.sh mount DIR SIZE    makes DIR if need be; SIZE as 64M
#   small-disk.sh umount DIR        and removes DIR when it is empty
#   small-disk.sh check             says whether this machine allows it
set -euo pipefail
me=small-disk
# shellcheck source=scripts/lib.sh
. "$(dirname "$0")/lib.sh"

usage() {
  sed -n '2,/^set -euo/{/^set -euo/d;s/^# \{0,1\}//;p}' "$0" >&2
  exit 2
}
is_ours() { [ "$(findmnt -n -o SOURCE --mountpoint "$1" 2>/dev/null)" = strata-small-disk ]; }

case ${1:-} in
  mount)
    [ $# = 3 ] || usage
    [ "$(id -u)" = 0 ] || die "mounting needs root"
    mkdir -p "$2"
    if findmnt -n --mountpoint "$2" >/dev/null; then die "something is mounted on $2 already"; fi
    [ -z "$(ls -A "$2")" ] || die "$2 is not empty"
    mount -t tmpfs -o "size=$3,mode=0755" strata-small-disk "$2"
    ;;
  umount)
    [ $# = 2 ] || usage
    if is_ours "$2"; then
      umount "$2"
    elif findmnt -n --mountpoint "$2" >/dev/null; then
      die "what is mounted on $2 was not mounted by this script"
    fi
    rmdir "$2" 2>/dev/null || true
    ;;
  check)
    dir=$(mktemp -d)
    if "$0" mount "$dir" 1M && "$0" umount "$dir"; then
      say "works"
    else
      rmdir "$dir" 2>/dev/null || true
      die "this machine does not allow it"
    fi
    ;;
  *) usage ;;
esac
