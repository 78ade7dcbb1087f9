#!/usr/bin/env bash
# Gets a fresh Debian 12 or 13 ready to build and test Strata.
#
# - picks the newest MariaDB of the release's series (10.11 or 11.8) of which
#   both the binary packages and the source can be had (a storage engine must be
#   compiled against exactly the version that loads it), and installs it without
#   starting the system server. One that is installed is taken as it is; when a
#   security update has replaced it, the next run takes that;
# - unpacks the server's headers, which Debian does not ship, to target/server;
# - writes target/server/env.mk, which make includes and shells source;
# - installs the tools (compiler, make, sysbench) and checks for cargo.
#
# With the argument 'bench' it gets ready for 'make bench' only: cargo and what RocksDB's build needs; with 'browser' for the
# tests that open the lab's pages: Chromium; with 'monitoring' for 'make monitoring-test': Prometheus and the exporter for MariaDB;
# with 'redmine' for the lab's experiment of that name: Redmine with its gems, and fio; with 'chroot' for scripts/chroot.sh:
# debootstrap; with 'spider' for the lab's trials of several servers through Spider: the server's package of it; with 'deb' for 'make deb', besides all of the ordinary set-up: debhelper and what else packages are made with.
#
# It records in /var/lib/strata-setup what it installs; 'make uninstall' takes that back.
# A second run only checks, and takes about a second. Environment:
#   MARIADB_VERSION=10.11.N    ask for this version
#   STRATA_REPLACE_SERVER=1    allow replacing an installed MariaDB of another version
#   STRATA_CACHE=DIR           where unpacked headers are kept for other checkouts
#                              (default /var/cache/strata)
set -euo pipefail

top=$(cd "$(dirname "$0")/.." && pwd)
dest=$top/target/server
cache=${STRATA_CACHE:-/var/cache/strata}
marker=/var/lib/strata-setup/version
# Older set-ups kept the server at one version with this file, which kept security updates away, too.
former_pin=/etc/apt/preferences.d/strata-mariadb.pref
# What scripts/uninstall.sh takes back: packages that were not there before, and former versions of replaced ones.
records=/var/lib/strata-setup
min_cargo=1.88
# The series of the server that this release of Debian has.
codename=$(. /etc/os-release && printf '%s' "${VERSION_CODENAME:-}")
case $codename in
  bookworm) series=10.11 ;;
  trixie) series=11.8 ;;
  *) series= ;;
esac

# All of these come from one source package and must be of one version.
server_pkgs=(mariadb-server mariadb-server-core mariadb-client libmariadb-dev
  libmariadbd-dev mariadb-test mariadb-test-data mariadb-plugin-rocksdb mariadb-backup)
tool_pkgs=(gcc g++ make binutils git perl patch dpkg-dev xz-utils zstd netbase sysbench)
# The rocksdb crate compiles RocksDB, and makes its bindings with libclang.
bench_pkgs=(gcc g++ make git clang libclang-dev)
# Opens the pages that the lab makes; the fonts are for their text.
browser_pkgs=(chromium fonts-dejavu-core)
# An application to measure, with its gems, and what loads the disk beside it. Without dbconfig's help: it would ask for a server
# of the system and make a database there, while the lab has servers of its own.
redmine_pkgs=(redmine redmine-mysql dbconfig-no-thanks fio)
chroot_pkgs=(debootstrap)
# Watches a server as docs/use/monitoring.md says.
monitoring_pkgs=(prometheus prometheus-mysqld-exporter)
# Tables that are partitions on other servers. Of the very version of the server, which it depends on.
spider_pkg=mariadb-plugin-spider
deb_pkgs=(debhelper fakeroot help2man lintian po-debconf)

say() { printf 'setup: %s\n' "$*"; }
# Status 3: the archive has not what is needed, and nothing here changes that.
die() {
  printf 'setup: %s\n' "$@" >&2
  exit "${status:-1}"
}

# The version of an installed package, or nothing.
installed() {
  dpkg-query -W -f='${db:Status-Abbrev} ${Version}\n' "$1" 2>/dev/null |
    awk '$1 == "ii" { print $2 }' || true
}

# 1:10.11.18-0+deb12u1 -> 10.11.18, 1:11.8.9+ds-0+deb13u1 -> 11.8.9
short() {
  local v=${1#*:}
  printf '%s\n' "${v%%[-+]*}"
}

need_root() {
  [ "$(id -u)" = 0 ] || die "$1" "Run this once as root: sudo scripts/setup.sh"
}

#---------------------------------------------------------------- cargo

check_cargo() {
  local v
  if ! command -v cargo >/dev/null || ! v=$(cd "$top" && cargo --version 2>/dev/null); then
    die "cargo is missing, or does not run in this checkout." \
      "Strata needs Rust $min_cargo or newer; Debian 12's own rustc is too old." \
      "Install rustup (see rustup's own page), then the toolchain that" \
      "rust-toolchain.toml names, with rustfmt and clippy, and run this again."
  fi
  v=$(awk '{ print $2 }' <<<"$v")
  if [ "$(printf '%s\n%s\n' "$min_cargo" "$v" | sort -V | head -n1)" != "$min_cargo" ]; then
    die "cargo is $v, and Strata needs $min_cargo or newer." \
      "With rustup, install the one that rust-toolchain.toml names."
  fi
}

#---------------------------------------------------------------- a quick look

# Nothing to do when the checkout's env.mk is for what is installed.
up_to_date() {
  local want pkg
  [ ! -f "$former_pin" ] || [ "$(id -u)" != 0 ] || return 1
  [ -f "$dest/env.mk" ] && [ -f "$dest/src/sql/handler.h" ] &&
    [ -f "$dest/gen/probes_mysql_nodtrace.h" ] || return 1
  grep -q STRATA_SERVER_BUILD= "$dest/env.mk" || return 1
  # env.mk of another place (a moved or copied checkout) does not count.
  grep -qxF "STRATA_SERVER_DIR='$dest'" "$dest/env.sh" 2>/dev/null || return 1
  want=$(sed -n "s/^MARIADB_PACKAGE_VERSION='\(.*\)'$/\1/p" "$dest/env.sh")
  [ -n "$want" ] || return 1
  if [ -n "${MARIADB_VERSION:-}" ] && [ "$(short "$want")" != "$MARIADB_VERSION" ]; then
    return 1
  fi
  for pkg in "${server_pkgs[@]}"; do
    [ "$(installed "$pkg")" = "$want" ] || return 1
  done
  for pkg in "${tool_pkgs[@]}"; do
    [ -n "$(installed "$pkg")" ] || return 1
  done
}

#---------------------------------------------------------------- apt

# Lists are read to their end before they are searched: with pipefail, a
# 'grep -q' that stops early would make the program before it fail.
source_versions() {
  apt-cache showsrc --only-source mariadb 2>/dev/null | sed -n 's/^Version: //p'
}
binary_versions() { apt-cache madison "$1" | awk -F' *[|] *' '{ print $2 }'; }
has_line() { grep -qxF -e "$1" <<<"$2"; }
source_in_series() { grep -qE "^([0-9]+:)?${series//./\\.}\." <<<"$(source_versions)"; }

apt_get() { DEBIAN_FRONTEND=noninteractive apt-get -qq -o Dpkg::Use-Pty=0 "$@"; }

# Source entries for every binary entry of this Debian release, derived from
# the machine's own list, in a file of their own.
enable_source_lists() {
  local f tmp
  local out=/etc/apt/sources.list.d/strata-src.sources
  local out_list=/etc/apt/sources.list.d/strata-src.list
  if source_in_series; then
    return
  fi
  say "enabling the source lists: $out, or .list"
  tmp=$(mktemp)
  for f in /etc/apt/sources.list.d/*.sources; do
    if [ ! -f "$f" ] || [ "$f" = "$out" ]; then continue; fi
    # Paragraph by paragraph; only enabled ones of this release.
    awk -v codename="$codename" '
      function flush_par() {
        if (par != "" && types ~ /deb/ && suites ~ codename && enabled != "no") {
          printf "%s\n", par
        }
        par = ""; types = ""; suites = ""; enabled = ""
      }
      /^[ \t]*$/ { flush_par(); next }
      /^#/ { next }
      /^Types:/ { types = $0; par = par "Types: deb-src\n"; next }
      /^Enabled:/ { enabled = tolower($2) }
      /^Suites:/ { suites = $0 }
      /^Architectures:/ { next }
      { par = par $0 "\n" }
      END { flush_par() }' "$f" >>"$tmp"
  done
  if [ -s "$tmp" ]; then
    install -m 644 "$tmp" "$out"
  fi
  : >"$tmp"
  for f in /etc/apt/sources.list /etc/apt/sources.list.d/*.list; do
    if [ ! -f "$f" ] || [ "$f" = "$out_list" ]; then continue; fi
    sed -n "s/^deb[[:space:]]\(.*[[:space:]]${codename}[^[:space:]]*[[:space:]].*\)/deb-src \1/p" "$f" >>"$tmp"
  done
  if [ -s "$tmp" ]; then
    install -m 644 "$tmp" "$out_list"
  fi
  rm -f "$tmp"
  apt_get update
  source_in_series ||
    die "apt knows no source package 'mariadb' of series $series." \
      "Check the deb-src entries in /etc/apt/sources.list.d."
}

have_binaries() {
  local v=$1 pkg
  for pkg in "${server_pkgs[@]}"; do
    has_line "$v" "$(binary_versions "$pkg")" || [ "$(installed "$pkg")" = "$v" ] || return 1
  done
}

# Downloads the source of version $1 and unpacks the headers to the cache.
fetch_headers() {
  local v=$1 dir work
  dir=$cache/mariadb-$(short "$v")
  [ ! -f "$dir/.complete" ] || return 0
  has_line "$v" "$(source_versions)" || return 1
  mkdir -p "$cache"
  work=$(mktemp -d "$cache/unpack.XXXXXX")
  chmod 755 "$work"
  say "downloading the source of mariadb $v"
  if ! (cd "$work" && apt_get -o APT::Sandbox::User=root source --download-only "mariadb=$v") \
    >"$work/log" 2>&1; then
    say "the source of $v cannot be downloaded: $(tail -n1 "$work/log")"
    rm -rf "$work"
    return 1
  fi
  unpack_headers "$work"
  : >"$work/out/.complete"
  rm -rf "$dir"
  mv "$work/out" "$dir"
  chmod -R a+rX "$dir"
  rm -rf "$work"
}

# In folder $1: from the downloaded source to out/src and out/gen. Called where
# a failure does not end the script by itself, so each step says so.
unpack_headers() {
  local work=$1 orig deb base p
  orig=$(find "$work" -maxdepth 1 -name '*.orig.tar.*' ! -name '*.asc')
  deb=$(find "$work" -maxdepth 1 -name '*.debian.tar.*')
  if [ ! -f "$orig" ] || [ ! -f "$deb" ]; then die "the source package has not the files expected"; fi
  base=$(tar -tf "$orig" 2>/dev/null | sed -n '1{s,/.*,,p;q}' || true)
  mkdir -p "$work/out/src" "$work/out/gen"
  tar -xf "$orig" -C "$work/out/src" --strip-components=1 --wildcards --no-wildcards-match-slash \
    "$base/sql/*.h" "$base/include" "$base/wsrep-lib/include" "$base/wsrep-lib/wsrep-API/v26" ||
    die "the server's source cannot be unpacked"
  # Debian's patches, as far as they touch these headers.
  tar -xf "$deb" -C "$work" debian/patches || die "Debian's patches cannot be unpacked"
  while read -r p; do
    if grep -qE '^\+\+\+ [^/]+/(sql/[^/]+\.h|include/|wsrep-lib/include/|wsrep-lib/wsrep-API/)' \
      "$work/debian/patches/$p"; then
      say "applying the headers' part of Debian's patch $p"
      patch -s -f -p1 -d "$work/out/src" <"$work/debian/patches/$p" >/dev/null 2>&1 || true
      find "$work/out/src" -name '*.rej' -delete
    fi
  done < <(sed -e 's/#.*//' -e '/^[[:space:]]*$/d' "$work/debian/patches/series")
  cp "$work/out/src/include/probes_mysql_nodtrace.h.in" "$work/out/gen/probes_mysql_nodtrace.h" ||
    die "the source has no probes_mysql_nodtrace.h.in"
}

# Sets $version to the full package version to use.
choose_version() {
  local cand have
  have=$(installed mariadb-server)
  local cands=()
  # What is installed comes first: nothing has to be replaced then.
  if [ -n "$have" ] && [[ $(short "$have") == "$series".* ]]; then
    cands+=("$have")
  fi
  while read -r cand; do
    [ "$cand" = "$have" ] || cands+=("$cand")
  done < <(binary_versions mariadb-server | grep -E "^([0-9]+:)?${series//./\\.}\." | sort -Vru)
  for cand in "${cands[@]}"; do
    if [ -n "${MARIADB_VERSION:-}" ] && [ "$(short "$cand")" != "$MARIADB_VERSION" ]; then
      continue
    fi
    if ! have_binaries "$cand"; then
      say "$cand: not all binary packages can be had"
      continue
    fi
    if ! fetch_headers "$cand"; then
      say "$cand: its source cannot be had"
      continue
    fi
    version=$cand
    return
  done
  status=3 die "no version of MariaDB $series${MARIADB_VERSION:+ (asked for: $MARIADB_VERSION)} has both its binaries and its source within reach." \
    "Versions tried: ${cands[*]:-none}"
}

# Keeps packages from starting services while they are installed.
policy=/usr/sbin/policy-rc.d
policy_saved=
block_services() {
  if [ -e "$policy" ]; then
    policy_saved=$(mktemp)
    cp -p "$policy" "$policy_saved"
  else
    policy_saved=none
  fi
  printf '#!/bin/sh\nexit 101\n' >"$policy.strata"
  chmod 755 "$policy.strata"
  mv -f "$policy.strata" "$policy"
  trap restore_services EXIT
}
restore_services() {
  case $policy_saved in
    '') ;;
    none) rm -f "$policy" ;;
    *)
      cp -p "$policy_saved" "$policy"
      rm -f "$policy_saved"
      ;;
  esac
  policy_saved=
  trap - EXIT
}

# Each installed package: name:architecture and version.
all_packages() {
  dpkg-query -W -f='${db:Status-Abbrev} ${Package}:${Architecture} ${Version}\n' |
    awk '$1 == "ii" { print $2, $3 }' | sort
}
# Adds to the records what has come since the list in file $1, also where the installation broke off.
record_packages() {
  local now
  now=$(mktemp)
  all_packages >"$now"
  mkdir -p "$records"
  awk 'NR == FNR { had[$1] = $2; next } !($1 in had) { print $1 }' "$1" "$now" >>"$records/packages"
  awk 'NR == FNR { now[$1] = $2; next } ($1 in now) && now[$1] != $2 { print $1, $2 }' "$now" "$1" >>"$records/replaced"
  rm -f "$now" "$1"
}

apt_options=()
# apt-get install, with services kept from starting; what it brings is recorded.
apt_install() {
  local before
  say "installing: $*"
  before=$(mktemp)
  all_packages >"$before"
  block_services
  if ! apt_get install -y --no-install-recommends --allow-downgrades "${apt_options[@]}" "$@" \
    >"$top/target/setup.log" 2>&1; then
    tail -n 30 "$top/target/setup.log" >&2
    record_packages "$before"
    die "apt-get install failed; its output is in target/setup.log"
  fi
  restore_services
  record_packages "$before"
}

install_tools() {
  local pkg missing=()
  for pkg in "$@"; do
    [ -n "$(installed "${pkg%%=*}")" ] || missing+=("$pkg")
  done
  [ ${#missing[@]} = 0 ] || apt_install "${missing[@]}"
}

install_server() {
  local pkg have missing=()
  have=$(installed mariadb-server)
  # What set-up installed itself it also moves on, but never back: the newer one may be there for the sake of security.
  if [ -n "$have" ] && [ "$have" != "$version" ] && [ "${STRATA_REPLACE_SERVER:-0}" != 1 ] &&
    { [ ! -f "$marker" ] || dpkg --compare-versions "$have" gt "$version"; }; then
    die "MariaDB $have is installed, but Strata can only be built for $version here." \
      "To replace the installed server: STRATA_REPLACE_SERVER=1 scripts/setup.sh"
  fi
  for pkg in "${server_pkgs[@]}"; do
    [ "$(installed "$pkg")" = "$version" ] || missing+=("$pkg=$version")
  done
  if [ ${#missing[@]} -gt 0 ]; then
    # Libraries of the same source have to follow: for this call alone apt prefers their version.
    preferences=$(mktemp)
    printf 'Package: src:mariadb\nPin: version %s\nPin-Priority: 1001\n' "$version" >"$preferences"
    chmod 644 "$preferences"
    apt_options=(-o "Dir::Etc::Preferences=$preferences")
    apt_install "${missing[@]}"
    apt_options=()
    rm -f "$preferences"
  fi
  if [ -z "$have" ]; then
    mkdir -p "$(dirname "$marker")"
    printf '%s\n' "$version" >"$marker"
  fi
}

#---------------------------------------------------------------- the checkout's part

write_checkout() {
  local v inc services tests build_id sysinc=/usr/include/mariadb/server
  v=$(short "$version")
  mkdir -p "$dest"
  rm -rf "$dest/src" "$dest/gen" "$dest/env.mk" "$dest/env.sh"
  cp -r "$cache/mariadb-$v/src" "$cache/mariadb-$v/gen" "$dest/"
  services=$(dpkg -L libmariadb-dev | sed -n '/\/libmysqlservices\.a$/p')
  [ -n "$services" ] || die "libmysqlservices.a is not in libmariadb-dev"
  # Its place has another name in each series.
  tests=$(dpkg -L mariadb-test | sed -n 's,/mtr$,,p')
  [ -n "$tests" ] || die "there is no mtr in mariadb-test"
  grep -q "MYSQL_SERVER_VERSION.*\"$v-MariaDB\"" "$sysinc/mysql_version.h" ||
    die "the installed headers in $sysinc are not of $v"
  inc="-I$dest/gen -I$sysinc -I$dest/src/sql -I$dest/src/include"
  inc+=" -I$dest/src/wsrep-lib/include -I$dest/src/wsrep-lib/wsrep-API/v26"
  local flags="-std=gnu++17 -fPIC -DMYSQL_DYNAMIC_PLUGIN -DMYSQL_SERVER=1 -DHAVE_CONFIG_H"
  flags+=" -D_FILE_OFFSET_BITS=64 -DDBUG_OFF"
  # The plugin compares it with that of the server that loads it.
  build_id=$(LC_ALL=C readelf -n /usr/sbin/mariadbd | sed -n 's/^ *Build ID: //p')
  flags+=" -DSTRATA_SERVER_BUILD=$build_id"
  # One set of values, in both make's and the shell's spelling.
  local names=(STRATA_SERVER_DIR MARIADB_VERSION MARIADB_PACKAGE_VERSION MARIADB_CXXFLAGS
    MARIADB_INCLUDES MARIADB_SERVICES_LIB MARIADB_LIBS MARIADBD MARIADB_PLUGIN_DIR
    MARIADB_TEST_DIR)
  local values=("$dest" "$v" "$version" "$flags" "$inc" "$services" "-lpthread -ldl -lm -lgcc_s"
    /usr/sbin/mariadbd /usr/lib/mysql/plugin "$tests")
  local i
  {
    printf '# Written by scripts/setup.sh; for make.\n'
    for i in "${!names[@]}"; do printf '%s := %s\n' "${names[i]}" "${values[i]}"; done
  } >"$dest/env.mk.new"
  {
    printf '# Written by scripts/setup.sh; for shells.\n'
    for i in "${!names[@]}"; do printf "%s='%s'\n" "${names[i]}" "${values[i]}"; done
  } >"$dest/env.sh"
  mv "$dest/env.mk.new" "$dest/env.mk"
}

#---------------------------------------------------------------- main

check_cargo
# What is installed by the name of its group alone, so that the ordinary set-up stays quick.
group=()
case ${1:-} in
  bench) group=("${bench_pkgs[@]}") ;;
  browser) group=("${browser_pkgs[@]}") ;;
  chroot) group=("${chroot_pkgs[@]}") ;;
  monitoring) group=("${monitoring_pkgs[@]}") ;;
  redmine) group=("${redmine_pkgs[@]}") ;;
  spider)
    [ -n "$(installed mariadb-server)" ] || die "the server comes first: scripts/setup.sh"
    group=("$spider_pkg=$(installed mariadb-server)")
    ;;
esac
if [ ${#group[@]} -gt 0 ]; then
  for pkg in "${group[@]}"; do
    if [ -z "$(installed "${pkg%%=*}")" ]; then
      need_root "packages are missing."
      mkdir -p "$top/target"
      [ -n "$(apt-cache madison "${pkg%%=*}" 2>/dev/null)" ] || apt_get update
      install_tools "${group[@]}"
      break
    fi
  done
  exit 0
fi
if [ "${1:-}" = deb ]; then tool_pkgs+=("${deb_pkgs[@]}"); fi
if up_to_date; then
  [ "${1:-}" = --quiet ] || say "ready: MariaDB $(sed -n "s/^MARIADB_VERSION='\(.*\)'$/\1/p" "$dest/env.sh"), $(cargo --version)"
  exit 0
fi

if [ ! -f /etc/debian_version ] || ! command -v apt-get >/dev/null; then
  die "this script installs Debian packages, and this is no Debian."
fi
[ -n "$series" ] || die "this is Debian '$codename'; set-up knows bookworm (12) with MariaDB 10.11 and trixie (13) with 11.8."
mkdir -p "$top/target"
need_root "packages or headers are missing."
say "this installs Debian packages (named below), adds source entries to apt if it has none for this release, and keeps the" \
  "server's headers in $cache; it records what it changes in $records. 'make uninstall' takes it back."
if [ -f "$former_pin" ] && grep -q "Strata's scripts/setup.sh" "$former_pin"; then
  say "removing $former_pin: the server gets security updates again, and the plugin is rebuilt for them"
  rm -f "$former_pin"
fi
if [ -z "$(apt-cache madison mariadb-server 2>/dev/null)" ]; then
  say "apt-get update"
  apt_get update
fi
install_tools "${tool_pkgs[@]}"
enable_source_lists
version=
choose_version
say "using MariaDB $version"
install_server
write_checkout
say "ready: MariaDB $(short "$version"), $(cargo --version)"
