#!/usr/bin/env bash
# Tries the package in a Debian with nothing in it: install, start, use, upgrade to one made anew, remove, install again, purge. Beside
# that: an update of the server alone is held back, one of both goes, and a server of another build is refused.
#
#   deb-test.sh [SUITE]    SUITE is that of the packages in target/deb (the machine's own), or one of scripts/chroot.sh, whose packages
#                          are in target/SUITE/deb. Needs root, and 'make deb' before (in the chroot, for another SUITE).
#
# "deb-test.sh --inside" is what runs in the chroot.
set -euo pipefail
me='deb-test'
# shellcheck source=scripts/lib.sh
. "$(dirname "$0")/lib.sh"
cd "$top"
own=$(. /etc/os-release && printf '%s' "$VERSION_CODENAME")
plugin=mariadb-plugin-strata

#---------------------------------------------------------------- outside

# The newest package in folder $1 that is not one made anew.
newest() { find "$1" -maxdepth 1 -name "${plugin}_*.deb" ! -name '*+b*' -printf '%T@ %p\n' | sort -n | tail -n 1 | cut -d' ' -f2-; }

# Writes package $1 anew to $2 with the fields of its control changed by the sed script $3.
repack() {
  local work
  work=$(mktemp -d)
  dpkg-deb --raw-extract "$1" "$work/tree"
  sed -i "$3" "$work/tree/DEBIAN/control"
  dpkg-deb --root-owner-group -Znone --build "$work/tree" "$2" >/dev/null
  rm -rf "$work"
}

outside() {
  local suite=${1:-$own} folder=$top/target/deb deb version
  [ "$suite" = "$own" ] || folder=$top/target/$suite/deb
  deb=$(newest "$folder")
  [ -n "$deb" ] || die "there is no package in $folder; run 'make deb'"
  version=$(dpkg-deb -f "$deb" Version)
  mkdir -p "$folder/test"
  rm -f "$folder"/test/*
  cp "$deb" "$folder/test/first.deb"
  repack "$deb" "$folder/test/second.deb" "s/^Version: .*/Version: $version+b1/"
  # Inside, the packages of the release are in target/deb, those of this machine's own too. Where this is a chroot of that release
  # already, they are one folder.
  if [ "$suite" = "$own" ] && ! [ "$folder" -ef "$top/target/$suite/deb" ]; then
    rm -rf "$top/target/$suite/deb/test"
    mkdir -p "$top/target/$suite/deb"
    cp -r "$folder/test" "$top/target/$suite/deb/"
  fi
  "$top/scripts/chroot.sh" "$suite" fresh scripts/deb-test.sh --inside
  rm -rf "$folder/test" "$top/target/$suite/deb/test"
}

#---------------------------------------------------------------- inside

log=/var/log/deb-test.log
count=0
apt_get() { DEBIAN_FRONTEND=noninteractive apt-get -qq -o Dpkg::Use-Pty=0 "$@" >>"$log" 2>&1; }
sql() { mariadb --no-defaults -u root -S /run/mysqld/mysqld.sock -N -B -e "$1"; }
passed() {
  count=$((count + 1))
  say "$*"
}
fail() {
  tail -n 30 "$log" /var/lib/mysql/*.err 2>/dev/null >&2 || true
  die "$@"
}
# expect WHAT WANTED GOT
expect() {
  [ "$2" = "$3" ] || fail "$1: expected '$2', but got '$3'"
  passed "$1"
}

# The server as its package starts it, less the service manager, which a chroot has not.
start_server() {
  local i
  install -d -o mysql -g mysql /run/mysqld
  runuser -u mysql -- mariadbd --log-error=/var/lib/mysql/server.err >>"$log" 2>&1 &
  server=$!
  for ((i = 0; i < 600; i++)); do
    if sql 'SELECT 1' >/dev/null 2>&1; then return; fi
    kill -0 "$server" 2>/dev/null || break
    sleep 0.1
  done
  fail "the server does not start"
}
stop_server() {
  mariadb-admin --no-defaults -u root -S /run/mysqld/mysqld.sock shutdown
  wait "$server"
}
engine_support() { sql "SELECT support FROM information_schema.engines WHERE engine = 'STRATA'"; }
installed() { dpkg-query -W -f='${db:Status-Abbrev}${Version}' "$1" 2>/dev/null | tr -d ' '; }

inside() {
  local dir=$top/target/deb/test first server_version version newer copy preferences plan
  first=$dir/first.deb
  version=$(dpkg-deb -f "$first" Version)
  server_version=$(dpkg-deb -f "$first" Depends | sed -n 's/.*mariadb-server-core (= \([^)]*\)).*/\1/p')
  : >"$log"
  apt_get update || fail "apt-get update"

  # All of the server at the version that the package is for, which need not be the newest.
  preferences=/etc/apt/preferences.d/this-server
  printf 'Package: src:mariadb\nPin: version %s\nPin-Priority: 1001\n' "$server_version" >"$preferences"
  apt_get install -y --no-install-recommends "$first" mariadb-backup || fail "the package cannot be installed"
  rm "$preferences"
  expect "installed with its server" "ii$version ii$server_version" "$(installed "$plugin") $(installed mariadb-server-core)"
  grep -q '/man1/strata-tool-salvage.1' <<<"$(dpkg-query -L "$plugin")" || fail "a manual page is missing"
  start_server
  expect "the engine is loaded" YES "$(engine_support)"
  sql "CREATE DATABASE shop; USE shop; CREATE TABLE shop.t (a INT PRIMARY KEY, b TEXT) ENGINE=STRATA; INSERT INTO shop.t SELECT seq, seq FROM seq_1_to_1000"
  strata-backup backup --help >/dev/null
  stop_server
  strata-tool verify /var/lib/mysql >>"$log" 2>&1 || fail "strata-tool finds damage"
  passed "strata-tool reads the stopped server's tables"
  start_server
  expect "rows after a restart" '1000 500500' "$(sql 'SELECT CONCAT(COUNT(*), " ", SUM(a)) FROM shop.t')"

  # An update of the server alone: not while the plugin is there. Both together go.
  newer=$(apt-cache madison mariadb-server-core | awk -F' *[|] *' '{ print $2 }' | sort -Vru | head -n 1)
  if dpkg --compare-versions "$newer" gt "$server_version"; then
    plan=$(apt-get -s upgrade)
    if grep -qE '^Inst mariadb-server' <<<"$plan"; then fail "'apt-get upgrade' would update the server alone"; fi
    passed "'apt-get upgrade' holds back the server's $newer"
    repack "$first" /tmp/strata-newer.$$.deb "s/^Version: .*/Version: ${version%%+*}+mariadb${newer#*:}/; s/(= $server_version)/(= $newer)/g"
    plan=$(apt-get -s install "/tmp/strata-newer.$$.deb" 2>&1) || fail "a plugin for the newer server is refused: $plan"
    rm -f "/tmp/strata-newer.$$.deb"
    expect "a plugin for $newer takes the server with it" 3 \
      "$(grep -cE "^Inst ($plugin|mariadb-server|mariadb-server-core) " <<<"$plan")"
  else
    say "the archive has no newer server to be held back"
  fi

  apt_get install -y "$dir/second.deb" || fail "the upgrade"
  expect "upgraded to one made anew" "ii$version+b1" "$(installed "$plugin")"
  stop_server
  start_server
  expect "rows after the upgrade" 1000 "$(sql 'SELECT COUNT(*) FROM shop.t')"
  stop_server

  # The same program with one byte of its build's name changed.
  copy=/usr/local/sbin/mariadbd-other
  perl -0777 -pe 's/(\x04\0\0\0\x14\0\0\0\x03\0\0\0GNU\0)(.)/$1 . chr(ord($2) ^ 1)/se' /usr/sbin/mariadbd >"$copy"
  chmod 755 "$copy"
  if timeout 60 runuser -u mysql -- "$copy" --log-error=/var/lib/mysql/other.err >>"$log" 2>&1; then
    fail "a server of another build starts with the plugin"
  fi
  grep -q 'Strata: the plugin was compiled for MariaDB .* and does not start in another build of the server' /var/lib/mysql/other.err ||
    fail "a server of another build does not say why it does not start"
  passed "a server of another build is refused with a sentence"

  apt_get remove -y "$plugin" || fail "the removal"
  start_server
  expect "removed, the server starts without the engine" '' "$(engine_support)"
  if sql 'SELECT * FROM shop.t' >/dev/null 2>&1; then fail "a table is read without its engine"; fi
  stop_server
  apt_get install -y "$dir/second.deb" || fail "the installation after a removal"
  start_server
  expect "installed again, it has its tables" 1000 "$(sql 'SELECT COUNT(*) FROM shop.t')"
  echo "$plugin $plugin/purge_data boolean true" | debconf-set-selections
  apt_get purge -y "$plugin" || fail "the purge"
  [ -d '/var/lib/mysql/#strata' ] || fail "a purge takes the data away from a running server"
  passed "a purge, asked for the data, keeps what a running server has open"
  stop_server
  apt_get install -y "$dir/second.deb"
  echo "$plugin $plugin/purge_data boolean false" | debconf-set-selections
  apt_get purge -y "$plugin" || fail "the purge"
  [ -d '/var/lib/mysql/#strata' ] || fail "a purge takes the data away unasked"
  [ ! -e /etc/mysql/mariadb.conf.d/strata.cnf ] || fail "a purge leaves the configuration"
  passed "a purge keeps the data and removes the configuration"
  apt_get install -y "$dir/second.deb"
  echo "$plugin $plugin/purge_data boolean true" | debconf-set-selections
  apt_get purge -y "$plugin" || fail "the purge"
  [ ! -e '/var/lib/mysql/#strata' ] || fail "a purge keeps the data though it is asked to remove it"
  passed "a purge removes the data when asked"
  printf '%s passed, 0 failed\n' "$count"
}

case ${1:-} in
  --inside)
    [ -n "${STRATA_IN_CHROOT:-}" ] || die "this is for the chroot that scripts/chroot.sh makes"
    inside
    ;;
  *) outside "$@" ;;
esac
