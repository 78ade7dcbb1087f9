#!/usr/bin/env bash
# Instructions of one transaction of sysbench's scripts, in user space, in the thread of the connection, counted by callgrind:
# the figure that is the same on a busy machine. Compares the plugins that it is given.
#
#   instructions.sh [PLUGIN...]     default: target/plugin/ha_strata.so
#
# Environment:
#   STRATA_SCRIPTS   the scripts, by default those of the table in docs/results/oltp.md that differ
#   STRATA_ROWS      rows of the one table, 20000
#   STRATA_ENGINE    its engine, "strata", with options: "strata TTL='k + INTERVAL 30000 DAY'" asks of each row whether it has expired
#
# A run of few and one of three times as many transactions are counted; their difference is divided by the transactions between
# them, so that connecting and preparing statements do not count.
set -euo pipefail
me=instructions
# shellcheck source=scripts/lib.sh
. "$(dirname "$0")/lib.sh"
load_env
cd "$top"

for tool in valgrind sysbench callgrind_control; do
  command -v "$tool" >/dev/null || die "$tool is not installed"
done

scripts=${STRATA_SCRIPTS:-oltp_point_select oltp_read_only oltp_update_non_index oltp_insert oltp_update_index oltp_write_only}
rows=${STRATA_ROWS:-20000}
engine=${STRATA_ENGINE:-strata}
export STRATA_RUN_DIR=$top/target/instructions
out=$STRATA_RUN_DIR/counts
server() { scripts/server.sh "$@"; }

# Runs script $1 with $2 transactions. Each run has a seed of its own, or the second would update rows to what they are.
seed=0
load() {
  seed=$((seed + 1))
  sysbench "$1" --db-driver=mysql --mysql-socket="$STRATA_SOCKET" --mysql-user=root --mysql-db=test --tables=1 \
    --table-size="$rows" --mysql-storage-engine="$engine" --threads=1 --events="$2" --time=0 --rand-seed="$seed" --rand-type=uniform \
    "${3:-run}" >"$STRATA_RUN_DIR/sysbench.log" 2>&1 || die "sysbench failed: $(tail -n 5 "$STRATA_RUN_DIR/sysbench.log")"
}

# Leaves in $counted the instructions of the connection's thread during script $1 with $2 transactions.
count() {
  local pid file best=0 total
  pid=$(cat "$STRATA_RUN_DIR/mariadbd.pid")
  rm -f "$out"/*
  callgrind_control --instr=on "$pid" >/dev/null 2>&1
  load "$1" "$2"
  callgrind_control --instr=off "$pid" >/dev/null 2>&1
  callgrind_control --dump "$pid" >/dev/null 2>&1
  # The thread that took the statements is the busiest; the flusher and the merges have threads of their own.
  for file in "$out"/counts*; do
    grep -q 'do_command' "$file" || continue
    total=$(awk '/^(totals|summary):/ { t = $2 } END { print t + 0 }' "$file")
    if [ "$total" -gt "$best" ]; then best=$total; fi
  done
  [ "$best" -gt 0 ] || die "callgrind counted nothing for $1"
  counted=$best
}

# Enough transactions for a count that does not depend on single pages.
few() {
  case $1 in
    oltp_read_only | oltp_read_write) echo 60 ;;
    oltp_write_only) echo 200 ;;
    *) echo 500 ;;
  esac
}

[ $# -gt 0 ] || set -- "$plugin_so"
for plugin in "$@"; do
  seed=0
  plugin=$(realpath "$plugin")
  # A server takes the plugin by its name.
  mkdir -p "$STRATA_RUN_DIR.plugin"
  cp "$plugin" "$STRATA_RUN_DIR.plugin/ha_strata.so"
  export STRATA_PLUGIN=$STRATA_RUN_DIR.plugin/ha_strata.so
  server remove >/dev/null
  server start --skip-networking >/dev/null
  eval "$(server env)"
  load oltp_read_write 0 prepare
  server stop >/dev/null
  mkdir -p "$out"
  STRATA_WRAPPER="valgrind --tool=callgrind --instr-atstart=no --separate-threads=yes --fair-sched=yes --callgrind-out-file=$out/counts.%p" \
    server start --skip-networking --innodb-use-native-aio=0 --loose-innodb-buffer-pool-size-max=64M >/dev/null
  for script in $scripts; do
    n=$(few "$script")
    load "$script" "$n"
    count "$script" "$n"
    one=$counted
    count "$script" "$((3 * n))"
    three=$counted
    printf '%-40s %-24s %12d\n' "$(basename "$plugin")" "$script" $(((three - one) / (2 * n)))
  done
  server stop >/dev/null
done
server remove >/dev/null
rm -rf "$STRATA_RUN_DIR.plugin"
