#!/usr/bin/env bash
# Tries docs/use/monitoring with the real exporter and the real Prometheus, beside a private server under load: the alerts are checked and
# tested by promtool, each figure and each query of the dashboard must have a value, a stall of writes must be told by its alert, and nothing
# else may be. As root the first time: it installs Debian's packages.
#
#   monitoring-test.sh [FOLDER]     puts pictures of the dashboard, under load and in the stall, in FOLDER
#
# Environment: STRATA_LOAD_SECONDS (60)
set -euo pipefail
me=monitoring
# shellcheck source=scripts/lib.sh
. "$(dirname "$0")/lib.sh"
cd "$top"
pictures=${1:-}
seconds=${STRATA_LOAD_SECONDS:-60}
work=$top/target/monitoring
switch=$work/no-flush
url=http://127.0.0.1:19090
export STRATA_RUN_DIR=$work/run
children=()

scripts/setup.sh monitoring
rm -rf "$work/prometheus"
mkdir -p "$work"

finish() {
  local child
  rm -f "$switch"
  for child in "${children[@]}"; do kill "$child" 2>/dev/null || true; done
  wait 2>/dev/null || true
  scripts/server.sh remove >/dev/null 2>&1 || true
}
trap finish EXIT

say 'the alerts'
promtool check rules docs/use/monitoring/strata.rules.yml
promtool test rules docs/use/monitoring/strata.rules.test.yml

scripts/server.sh remove >/dev/null
rm -f "$switch"
STRATA_FAIL_AT=write:hang:.sst:$switch scripts/server.sh start --strata-memtable-budget=32M --strata-block-cache-size=64M >/dev/null
eval "$(scripts/server.sh env)"
DATA_SOURCE_NAME="root@unix($STRATA_SOCKET)/" prometheus-mysqld-exporter --web.listen-address=127.0.0.1:19104 \
  >"$work/exporter.log" 2>&1 &
children+=($!)
cat >"$work/prometheus.yml" <<TXT
global: {scrape_interval: 1s, evaluation_interval: 1s}
rule_files: [$top/docs/use/monitoring/strata.rules.yml]
scrape_configs:
  - job_name: mariadb
    static_configs: [{targets: ['127.0.0.1:19104']}]
TXT
prometheus --config.file="$work/prometheus.yml" --storage.tsdb.path="$work/prometheus" --web.listen-address=127.0.0.1:19090 \
  >"$work/prometheus.log" 2>&1 &
children+=($!)

# until SECONDS COMMAND...: waits until the command succeeds.
until_true() {
  local i most=$1
  shift
  for ((i = 0; i < most; i++)); do
    if "$@" >/dev/null 2>&1; then return; fi
    sleep 1
  done
  die "not within $most s: $*" "$(tail -n 3 "$work"/*.log)"
}
bench() {
  sysbench oltp_read_write --mysql-socket="$STRATA_SOCKET" --mysql-user=root --mysql-db=test --mysql-storage-engine=strata \
    --tables=2 --table-size=100000 --threads=4 --rand-type=pareto --mysql-ignore-errors=all "$@"
}

until_true 60 scripts/dashboard.py firing "$url"
bench prepare >"$work/sysbench.log"
say "load for $seconds s"
began=$(date +%s)
bench --time="$seconds" run >>"$work/sysbench.log" 2>&1 &
load=$!
# Somebody waits for a lock from time to time, and a foreign key refuses a row.
client() { scripts/server.sh client test "$@"; }
client -e 'CREATE TABLE parent (id INT PRIMARY KEY) ENGINE=STRATA; INSERT INTO parent VALUES (1);
  CREATE TABLE child (id INT PRIMARY KEY, p INT, FOREIGN KEY (p) REFERENCES parent (id)) ENGINE=STRATA'
while kill -0 "$load" 2>/dev/null; do
  client -e 'INSERT INTO child VALUES (1, 2)' 2>/dev/null || true
  client -e 'BEGIN; UPDATE parent SET id = id WHERE id = 1; SELECT SLEEP(0.5); ROLLBACK' >/dev/null &
  other=$!
  client -e 'UPDATE parent SET id = id WHERE id = 1'
  wait "$other"
  sleep 1
done
wait "$load" || die 'the load has failed' "$(tail -n 20 "$work/sysbench.log")"
scripts/dashboard.py check "$url"
firing=$(scripts/dashboard.py firing "$url")
[ -z "$firing" ] || die "alerts without a cause: $firing"
[ -z "$pictures" ] || scripts/dashboard.py draw "$url" "$began" "$(date +%s)" "$pictures/load.svg"

say 'a stall: no table file can be written'
began=$(date +%s)
bench --time=150 run >>"$work/sysbench.log" 2>&1 &
children+=($!)
sleep 20
: >"$switch"
stalls() { scripts/dashboard.py firing "$url" | grep -qx StrataWriteStall; }
until_true 240 stalls
client -e "SELECT KIND, STATE, SECONDS_SINCE_BEGIN, BYTES_IN FROM information_schema.STRATA_COMPACTIONS WHERE STATE = 'RUNNING';
  SELECT STATE, COUNT(*) FROM information_schema.PROCESSLIST GROUP BY STATE"
rm -f "$switch"
ended() { ! stalls; }
until_true 240 ended
sleep 20
[ -z "$pictures" ] || scripts/dashboard.py draw "$url" "$began" "$(date +%s)" "$pictures/stall.svg"
say 'passed'
