#!/usr/bin/env bash
# Another release of Debian beside this machine's, for another series of MariaDB: a folder that debootstrap makes, in which commands
# run as if the machine had that release. Needs root.
#
#   chroot.sh SUITE make              makes it, with all that Strata's set-up installs; a second call takes seconds
#   chroot.sh SUITE run CMD...        runs CMD there, in the checkout
#   chroot.sh SUITE fresh CMD...      runs CMD in a new one with nothing but the smallest system, which is removed afterwards
#   chroot.sh SUITE remove            removes it
#
# SUITE is bookworm (MariaDB 10.11) or trixie (11.8). The packages come from the mirror that this machine's apt uses for its own
# release.
#
# Inside, the checkout has the same path, and cargo the same folders: what cargo has built outside is up to date inside. (Not the other
# way: what is linked in a newer release need not run in an older one. So it is built outside first.) What depends on the server's
# version lies apart, under target/SUITE, and takes its usual place inside: target/server, target/plugin, target/mtr-results, run.
# Mounts live in a namespace of their own and processes too: both end with the command, whatever way it ends.
#
# Environment: STRATA_CHROOTS, where they are kept (/var/cache/strata/chroots), some 2 GB for each release.
set -euo pipefail
me=chroot
# shellcheck source=scripts/lib.sh
. "$(dirname "$0")/lib.sh"

chroots=${STRATA_CHROOTS:-/var/cache/strata/chroots}
cargo_home=${CARGO_HOME:-$HOME/.cargo}
rustup_home=${RUSTUP_HOME:-$HOME/.rustup}
# Where earlier-server.sh puts what it takes.
earlier=/var/cache/strata/archive
earlier_list=/etc/apt/sources.list.d/strata-earlier-server.list
# Takes the place of the folder of that name inside.
apart=(server plugin mtr-results deb)

suite=${1:-}
cmd=${2:-}
case $suite in
  bookworm | trixie) ;;
  *)
    sed -n '2,/^set -euo/{/^set -euo/d;s/^# \{0,1\}//;p}' "$0"
    exit 2
    ;;
esac
shift 2 || true
[ "$(id -u)" = 0 ] || die "another release of Debian needs root"

# SITE RELEASE SIGNED-BY of each archive that apt has for this machine's own release.
archives() {
  local codename
  codename=$(. /etc/os-release && printf '%s' "$VERSION_CODENAME")
  # shellcheck disable=SC2016
  apt-get indextargets --format '$(SITE) $(RELEASE)' 'Created-By: Packages' |
    awk -v c="$codename" '$2 == c || $2 == c "-security" || $2 == c "-updates"' | sort -u
}

# The smallest system of the release, in $chroots/SUITE.base.
make_base() {
  local base=$chroots/$suite.base site codename new
  [ ! -f "$base/.complete" ] || return 0
  command -v debootstrap >/dev/null || "$top/scripts/setup.sh" chroot
  codename=$(. /etc/os-release && printf '%s' "$VERSION_CODENAME")
  site=$(archives | awk -v c="$codename" '$2 == c { print $1; exit }')
  [ -n "$site" ] || die "apt has no archive of this machine's own release to take Debian $suite from"
  say "making a minimal Debian $suite"
  new=$base.new
  rm -rf "$base" "$new"
  mkdir -p "$chroots"
  if ! debootstrap --variant=minbase "$suite" "$new" "$site" >"$chroots/$suite.log" 2>&1; then
    tail -n 5 "$chroots/$suite.log" >&2
    rm -rf "$new"
    die "Debian '$suite' cannot be had from the archive that this machine's apt uses (see above)." \
      "Without it this checkout is not tested with the MariaDB of that release."
  fi
  archives | while read -r site release; do
    printf 'deb %s %s main\n' "$site" "${release/#$codename/$suite}"
  done >"$new/etc/apt/sources.list"
  # As this machine reaches its archives, by a proxy for one.
  apt-config dump | grep -E '^Acquire::(http|https|Retries)' >"$new/etc/apt/apt.conf.d/80outside" || true
  # Nothing starts by itself there.
  printf '#!/bin/sh\nexit 101\n' >"$new/usr/sbin/policy-rc.d"
  chmod 755 "$new/usr/sbin/policy-rc.d"
  : >"$new/.complete"
  mv "$new" "$base"
}

# enter ROOT CMD...: runs it in the checkout inside ROOT.
enter() {
  local root=$1 d binds=()
  shift
  cp -L /etc/resolv.conf "$root/etc/resolv.conf" 2>/dev/null || true
  for d in "${apart[@]}"; do
    mkdir -p "$top/target/$suite/$d" "$top/target/$d"
    binds+=("$top/target/$suite/$d" "$top/target/$d")
  done
  mkdir -p "$top/target/$suite/run" "$top/run"
  binds+=("$top/target/$suite/run" "$top/run")
  for d in "$cargo_home" "$rustup_home"; do
    [ ! -d "$d" ] || binds=("$d" "$d" "${binds[@]}")
  done
  # /tmp is the machine's: there the regression tests of all servers agree about their ports.
  binds=(/dev /dev /sys /sys /tmp /tmp "$top" "$top" "${binds[@]}")
  # Expanded there, not here.
  # shellcheck disable=SC2016
  unshare --mount --pid --fork --kill-child bash -c '
    set -euo pipefail
    root=$1 top=$2 binds=$3
    shift 3
    # The root has to be a mount: programs look for it in /proc/mounts, and change how it is shared.
    mount --bind "$root" "$root"
    mount -t proc proc "$root/proc"
    for ((; binds > 0; binds -= 2)); do
      mkdir -p "$root$2"
      mount --rbind "$1" "$root$2"
      shift 2
    done
    cd "$root$top"
    exec chroot "$root" "$@"' enter "$root" "$top" "${#binds[@]}" "${binds[@]}" \
    /usr/bin/env -i HOME="$HOME" LANG=C.UTF-8 TERM="${TERM:-dumb}" PATH="$cargo_home/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin" \
    CARGO_HOME="$cargo_home" RUSTUP_HOME="$rustup_home" CARGO_NET_OFFLINE="${CARGO_NET_OFFLINE:-false}" \
    CARGO_TERM_COLOR="${CARGO_TERM_COLOR:-auto}" STRATA_MTR_ROOT="$top/target/$suite/mtr-root" \
    STRATA_MTR_PARALLEL="${STRATA_MTR_PARALLEL:-2}" STRATA_IN_CHROOT="$suite" \
    bash -c 'cd "$0" && exec "$@"' "$top" "$@" <&0 &
  # A first process of a namespace passes over what would end others.
  inside=$!
  trap 'kill -KILL $inside 2>/dev/null; exit 143' TERM INT HUP
  wait $inside
}

make_root() {
  mkdir -p "$chroots"
  exec 8>"$chroots/$suite.lock"
  flock 8
  make_base
  # What broke off goes on: set-up installs what is missing.
  if [ ! -d "$chroots/$suite" ]; then
    rm -rf "$chroots/$suite.new"
    cp -a "$chroots/$suite.base" "$chroots/$suite.new"
    rm "$chroots/$suite.new/.complete"
    mv "$chroots/$suite.new" "$chroots/$suite"
  fi
  [ -f "$chroots/$suite/.complete" ] || enter "$chroots/$suite" apt-get -qq update 8>&-
  local rc=0
  enter "$chroots/$suite" scripts/setup.sh 8>&- || rc=$?
  # Here an earlier version of the server does as well, where the newest one's source is not to be had.
  if [ $rc = 3 ]; then
    rc=0
    enter "$chroots/$suite" bash -c 'scripts/earlier-server.sh && scripts/setup.sh' 8>&- || rc=$?
  fi
  [ $rc = 0 ] || return $rc
  : >"$chroots/$suite/.complete"
  exec 8>&-
}

case $cmd in
  make) make_root ;;
  run)
    [ -f "$chroots/$suite/.complete" ] || make_root
    enter "$chroots/$suite" "$@"
    ;;
  fresh)
    mkdir -p "$chroots"
    (
      flock 8
      make_base
    ) 8>"$chroots/$suite.lock"
    root=$(mktemp -d "$chroots/fresh.XXXXXX")
    trap 'rm -rf --one-file-system "$root"' EXIT
    cp -a "$chroots/$suite.base/." "$root/"
    # What earlier-server.sh keeps for this release; where this is a chroot of it already, here.
    from=$chroots/$suite
    if [ "${STRATA_IN_CHROOT:-}" = "$suite" ]; then from=; fi
    if [ -d "$from$earlier" ]; then
      mkdir -p "$root$(dirname "$earlier")"
      cp -al "$from$earlier" "$root$earlier"
      cp "$from$earlier_list" "$root$earlier_list"
    fi
    enter "$root" "$@"
    ;;
  remove) rm -rf --one-file-system "${chroots:?}/$suite" "$chroots/$suite.base" "$chroots/$suite.lock" "$chroots/$suite.log" ;;
  *) die "chroot.sh $suite make | run CMD... | fresh CMD... | remove" ;;
esac
