#!/usr/bin/env bash
# A private MariaDB with Strata, all of it under run/ in the checkout: data,
# socket, log, pid file. It listens on 127.0.0.1 only, on a port of its own,
# and root has no password there. The system's MariaDB is not touched.
#
#   server.sh start [OPTION...]     options go to mariadbd, as --strata-...=...
#   server.sh stop | restart [OPTION...] | status | kill
#   server.sh client [ARG...]       the command line client
#   server.sh env                   STRATA_SOCKET=..., for programs that connect
#   server.sh remove                stops it, and removes its data
#
# "kill" is SIGKILL, for crash tests. Environment:
#   STRATA_RUN_DIR   another folder than run/, for a second server
#   STRATA_PLUGIN    another plugin than target/plugin/ha_strata.so, or "none"
#   STRATA_WRAPPER   a command that runs the server, as "valgrind --tool=callgrind"
set -euo pipefail
me=server
# shellcheck source=scripts/lib.sh
. "$(dirname "$0")/lib.sh"

run=${STRATA_RUN_DIR:-$top/run}
mkdir -p "$run"
run=$(cd "$run" && pwd)
cnf=$run/my.cnf
pid_file=$run/mariadbd.pid
log=$run/mariadbd.log
socket=$run/strata.sock
# A socket's path holds 107 bytes.
if [ ${#socket} -gt 100 ]; then
  socket=/tmp/strata-$(id -u)-$(printf '%s' "$run" | cksum | cut -d' ' -f1).sock
fi
plugin=${STRATA_PLUGIN:-$plugin_so}
plugin_name=$(basename "$plugin" .so)

# The server's process id, when it is this folder's server that has it.
pid() {
  local p
  p=$(cat "$pid_file" 2>/dev/null) || return 1
  [ -n "$p" ] && tr '\0' '\n' <"/proc/$p/cmdline" 2>/dev/null | grep -xF -e "--defaults-file=$cnf" >/dev/null || return 1
  printf '%s\n' "$p"
}

port() { cat "$run/port" 2>/dev/null; }

in_use() { (: <"/dev/tcp/127.0.0.1/$1") 2>/dev/null; }

choose_port() {
  local p
  p=$(port || true)
  if [ -n "$p" ] && ! in_use "$p"; then return; fi
  for p in $(seq 13306 13399); do
    if ! in_use "$p"; then
      printf '%s\n' "$p" >"$run/port"
      return
    fi
  done
  die "no port between 13306 and 13399 is free"
}

client() { mariadb --no-defaults --socket="$socket" --user=root "$@"; }
admin() { mariadb-admin --no-defaults --socket="$socket" --user=root "$@"; }

write_config() {
  local f
  rm -rf "$run/plugins"
  mkdir -p "$run/plugins" "$run/tmp"
  for f in "$MARIADB_PLUGIN_DIR"/*.so; do ln -s "$f" "$run/plugins/"; done
  {
    echo "# Written by scripts/server.sh at every start."
    echo "[mariadbd]"
    echo "user=$(id -un)"
    echo "datadir=$run/data"
    echo "tmpdir=$run/tmp"
    echo "socket=$socket"
    echo "port=$(port)"
    echo "bind-address=127.0.0.1"
    echo "character-set-server=utf8mb4"
    echo "pid-file=$pid_file"
    echo "log-error=$log"
    echo "plugin-dir=$run/plugins"
    echo "plugin-maturity=unknown"
    echo "innodb-buffer-pool-size=64M"
    echo "innodb-log-file-size=32M"
    if [ "$plugin" != none ]; then
      # A copy, so that a rebuild does not disturb the server.
      rm -f "$run/plugins/$plugin_name.so"
      cp -L "$plugin" "$run/plugins/$plugin_name.so"
      echo "plugin-load-add=$plugin_name.so"
      echo "loose-${plugin_name#ha_}=FORCE_PLUS_PERMANENT"
    fi
  } >"$cnf"
}

install_data() {
  [ ! -d "$run/data/mysql" ] || return 0
  say "making the data directory"
  rm -rf "$run/data"
  mkdir -p "$run/data"
  if ! mariadb-install-db --no-defaults --user="$(id -un)" --datadir="$run/data" --tmpdir="$run" \
    --auth-root-authentication-method=normal --skip-test-db --skip-name-resolve \
    >"$run/install.log" 2>&1; then
    tail -n 30 "$run/install.log" >&2
    rm -rf "$run/data"
    die "mariadb-install-db failed"
  fi
  client_db=1
}

start() {
  local i p client_db=
  load_env
  if p=$(pid); then
    say "running already (process $p)"
    return
  fi
  [ "$plugin" = none ] || [ -f "$plugin" ] || die "there is no $plugin; run 'make plugin'"
  choose_port
  write_config
  install_data
  rm -f "$pid_file"
  printf '\n' >>"$log"
  # A command and its options: words of their own.
  # shellcheck disable=SC2086
  setsid ${STRATA_WRAPPER:-} "$MARIADBD" --defaults-file="$cnf" "$@" </dev/null >>"$log" 2>&1 &
  p=$!
  for ((i = 0; i < 1200; i++)); do
    if admin ping >/dev/null 2>&1; then break; fi
    if ! kill -0 "$p" 2>/dev/null; then
      tail -n 40 "$log" >&2
      die "the server did not start; its log is $log"
    fi
    sleep 0.1
  done
  admin ping >/dev/null 2>&1 || die "the server (process $p) does not answer after two minutes; its log is $log"
  [ -z "$client_db" ] || client -e 'CREATE DATABASE IF NOT EXISTS test'
  status
}

status() {
  local p
  if ! p=$(pid); then
    say "not running"
    return 1
  fi
  cat <<TXT
server: running (process $p), data in $run/data, log in $log
server: connect with   scripts/server.sh client test
server:         or     mariadb --no-defaults -u root -S $socket test
server:         or     mariadb --no-defaults -u root -h 127.0.0.1 -P $(port) test
server: stop it with   make stop
TXT
}

wait_gone() {
  local i
  for ((i = 0; i < $2 * 10; i++)); do
    kill -0 "$1" 2>/dev/null || return 0
    # A child that its starter has not waited for is gone, too.
    [ "$(sed 's/.*) //;s/ .*//' "/proc/$1/stat" 2>/dev/null)" != Z ] || return 0
    sleep 0.1
  done
  return 1
}

stop() {
  local p
  if ! p=$(pid); then
    say "not running"
    return
  fi
  kill -TERM "$p"
  wait_gone "$p" 120 || die "process $p has not stopped after two minutes; its log is $log"
  rm -f "$pid_file"
  say "stopped"
}

cmd=${1:-}
[ $# -gt 0 ] && shift
case $cmd in
  start) start "$@" ;;
  stop) stop ;;
  restart)
    stop
    start "$@"
    ;;
  status) status ;;
  kill)
    p=$(pid) || die "not running"
    kill -KILL "$p"
    wait_gone "$p" 30 || die "process $p is still there"
    ;;
  client) client "$@" ;;
  env)
    cat <<TXT
STRATA_SOCKET='$socket'
STRATA_PORT='$(port || true)'
STRATA_PID='$(pid || true)'
STRATA_DATA='$run/data'
STRATA_LOG='$log'
TXT
    ;;
  remove)
    stop
    rm -rf "$run" "$socket"
    ;;
  *)
    sed -n '2,/^set -euo/{/^set -euo/d;s/^# \{0,1\}//;p}' "$0"
    exit 2
    ;;
esac
