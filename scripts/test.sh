#!/usr/bin/env bash
# Everything that must pass before a change is taken: 'make test'. Each step
# prints its time; all steps that can run are run, and any failure fails the
# whole. The sum of passed and failed tests is left in target/test-summary
# (a step without tests of its own counts as one).
#
#   test.sh             all steps
#   test.sh STEP...     only these: setup fmt clippy docs pages shell monitoring unit plugin
#                       core symbols sql slice collations differ isolation crash flashback backup
#                       failover spider damage salvage workload deb other
set -euo pipefail
me='test'
# shellcheck source=scripts/lib.sh
. "$(dirname "$0")/lib.sh"
cd "$top"

all=(setup fmt clippy docs pages shell monitoring unit plugin symbols sql slice collations differ isolation crash flashback backup failover spider damage salvage workload deb other)
logs=$top/target/test-logs
mkdir -p "$logs"
passed=0
failed=0
bad=()
declare -A state

# What a step needs to have passed.
declare -A needs=([unit]=setup [plugin]=setup [symbols]=plugin [sql]=plugin [slice]=plugin
  [collations]=plugin [differ]=plugin [isolation]=plugin [crash]=plugin [flashback]=plugin [backup]=plugin [failover]=plugin [spider]=plugin [damage]=plugin [salvage]=plugin [workload]=plugin [deb]=plugin [other]=plugin)

# Each step: prints what it does; its status is the verdict. Where it counted
# tests it leaves "N passed, M failed" in $count.
count=$logs/count

step_setup() { scripts/setup.sh; }
step_fmt() { cargo fmt --all --check; }
step_clippy() { cargo clippy --workspace --all-targets -- -D warnings; }
# Links between modules hold, also those to private items: the readers are engineers.
step_docs() {
  RUSTDOCFLAGS='-D warnings -A rustdoc::private_intra_doc_links' \
    cargo doc --workspace --no-deps --document-private-items
}
step_shell() {
  local f
  for f in scripts/*.sh .ci/run; do bash -n "$f"; done
  if command -v shellcheck >/dev/null; then shellcheck -x scripts/*.sh .ci/run; fi
}
# With debug assertions, which is why these are not built as a release.
step_unit() { unit_tests 1500 --workspace; }
# The charts are those of their figures; links and the summary of the pages are checked by lab/tests/pages.rs. Where mdbook is
# installed, which takes as long to build as all of the lab's drivers, the pages make a site.
step_pages() {
  if command -v python3 >/dev/null; then python3 scripts/charts.py --check; fi
  if ! command -v mdbook >/dev/null; then
    not_run "the site of the pages; docs/book.toml says how mdbook is installed"
    return
  fi
  mdbook build docs
}
# The quick half of 'unit': the tests of engine and row layer, which need no server.
step_core() { unit_tests 900 -p strata-engine -p strata-row; }
# Runs the tests of some packages (options of cargo) within $1 seconds. Many wait, for a clock, a disk or others: so the two largest
# programs run beside all others, each test in a thread, with more threads than there are processors.
unit_tests() {
  local limit=$1 target pid ok=0 rest=()
  local written=("$logs/suite-tests" "$logs/other-tests" "$logs/doc-tests")
  shift
  for target in {engine,row,mariadb,lab}/tests/*.rs {engine,row}/tests/*/main.rs; do
    [[ $target == */suite/* || ($* == *-p* && $target != engine/* && $target != row/*) ]] ||
      rest+=(--test "$(basename "${target%/main.rs}" .rs)")
  done
  cargo test "$@" --no-run
  timeout "$limit" cargo test "$@" --no-fail-fast --test suite -- --test-threads 4 >"${written[0]}" 2>&1 &
  pid=$!
  timeout "$limit" cargo test "$@" --no-fail-fast --lib --bins "${rest[@]}" >"${written[1]}" 2>&1 || ok=1
  timeout "$limit" cargo test "$@" --no-fail-fast --doc >"${written[2]}" 2>&1 || ok=1
  wait "$pid" || ok=1
  [ $ok = 0 ] || grep -hvE '^test .* ok$' "${written[@]}" || true
  awk '/^test result:/ { p += $4; f += $6 } END { print p + 0 " passed, " f + 0 " failed" }' "${written[@]}" >"$count"
  return $ok
}
# As scripts/deb.sh builds them: with other packages beside them some of what they use would be compiled another time.
tools() { cargo build --quiet --release -p strata-tool -p strata-backup; }
# The plugin, and beside it the lab's drivers and the tools: its optimization across crates has one thread.
step_plugin() {
  local pid ok=0
  { tools && cargo build --quiet --release -p strata-lab; } &
  pid=$!
  make --no-print-directory -j"$(nproc)" plugin || ok=1
  wait "$pid" || ok=1
  return $ok
}
step_symbols() { scripts/check-symbols.sh; }
step_sql() { mtr_step strata; }
step_slice() { mtr_step slice; }
mtr_step() {
  local ok=0
  rm -f target/mtr-results/last-count
  timeout 900 scripts/mtr.sh "$1" || ok=1
  if [ -f target/mtr-results/last-count ]; then cp target/mtr-results/last-count "$count"; fi
  return $ok
}
# What watches a server: the names it goes by are checked by lab/tests/monitoring.rs; the alerts where Prometheus is installed.
step_monitoring() {
  if ! command -v promtool >/dev/null; then
    not_run "'scripts/setup.sh monitoring' installs promtool"
    return
  fi
  promtool check rules docs/use/monitoring/strata.rules.yml
  promtool test rules docs/use/monitoring/strata.rules.test.yml
}
# Keys of text in every collation of the server; random SQL beside InnoDB, from a
# fixed seed, so that a change and not the day decides.
step_collations() { lab_step collations --seed 1 --texts 60; }
step_differ() { lab_step differ --seed 1 --programs 250 --seconds 300; }
# The known phenomena of isolation, on Strata and InnoDB; then random histories,
# with and without kills of the server.
step_isolation() {
  local levels=read-committed,repeatable-read,serializable engines=()
  load_env
  # The scenarios have InnoDB's answers in the first series; in 11.8 it answers one of them as Strata does (g-single-write).
  if [[ $MARIADB_VERSION != 10.11.* ]]; then engines=(--engines strata); fi
  lab_step anomalies --levels "read-uncommitted,$levels" "${engines[@]}"
  lab_step isolation --level "$levels" --seconds 8
  lab_step isolation --level "$levels" --seconds 8 --kill 1
}
# Ends the server under load, and checks what it finds afterwards, with the binary log
# and without it; then a replica and its source. The lab finds
# the server by the STRATA_... variables of "server.sh env", and restarts it with
# $STRATA_SERVER_SH start|kill|stop.
step_crash() {
  lab_step crash --rounds 3 --max-seconds 4
  lab_step crash --rounds 3 --max-seconds 2 --workload none --no-binlog
  lab_step crash --rounds 2 --max-seconds 2 --workload tpcc --foreign-keys --churn 0
  lab_step crash --rounds 4 --max-seconds 3 --workload none --rotate
  lab_step crash --rounds 4 --max-seconds 2 --workload none --no-binlog --rotate --server-option strata_flush_log_at_trx_commit=2
  lab_step ttl --rounds 2 --max-seconds 2
  lab_step replica --rounds 2
}
# Reads random moments of the past of a ledger that the lab knows, under kills, and beyond the retention.
step_flashback() { lab_step flashback --rounds 3 --max-seconds 3 --retention 12 --moments 15; }
# Backs a server up under load, with kills of tool and server; each backup is restored, and compared as a replica.
step_backup() {
  tools
  lab_step backup --rounds 5 --threads 2 --position
}
# Ends a source under load and promotes a replica, five times, each in its way.
step_failover() { lab_step failover --rounds 5 --max-seconds 0.5 --threads 2; }
# Ends servers at each step of a transaction over several of them: by the lab's coordinator, and by Spider where it is installed; then
# TPC-C over two.
step_spider() {
  lab_step spider --coordinator own --rounds 6 --max-seconds 0.3
  load_env
  if [ ! -f "$MARIADB_PLUGIN_DIR/ha_spider.so" ]; then
    say "NOT RUN: what goes through Spider; 'scripts/setup.sh spider' installs it"
    return
  fi
  lab_step spider --rounds 6 --max-seconds 0.3
  lab_step spider-tpcc --small --rounds 1 --warehouses 2 --seconds 4
}
# Breaks the files under a server, fills its disk, kills its statements.
step_damage() {
  local options=()
  if [ "$(id -u)" != 0 ]; then
    say "without root there is no small disk to fill"
    options=(--no-mount)
  fi
  lab_step damage "${options[@]}"
}
# Damages the files of a store, has what is left loaded by a fresh server, and compares.
step_salvage() {
  tools
  lab_step salvage --rounds 12 --seed 1
  lab_step salvage --rounds 6 --seed 2 --encrypted
}
# A short load with checks; LinkBench's check also after a kill. Then each of the published experiments in seconds.
step_workload() {
  lab_step tour --tpcc-seconds 5 --oltp-seconds 3
  lab_step linkbench --engines innodb,strata --nodes 2000 --cache-mb 64 --warmup 1 --seconds 2 --kill 1
  local experiment dir=$top/target/reproduce-tiny
  for experiment in tpcc-memory linkbench scale; do
    STRATA_LAB_DIR=$dir lab_step reproduce "$experiment" --scale tiny --fresh --engines innodb,strata
  done
  # Figures of seconds are for no page of ours.
  mkdir -p "$dir/tree"
  cp -r README.md docs "$dir/tree"
  cargo run --quiet --release -p strata-lab -- publish --top "$dir/tree" "$dir"/reproduce/*-tiny-*
  # A run beside what was published of it: the same figures on both sides, of one round.
  cargo run --quiet --release -p strata-lab -- compare --top "$dir/tree" "$dir"/reproduce/scale-tiny-* | tee "$dir/compared"
  grep -q '^No difference' "$dir/compared"
  rm -rf "$dir"
}
# A step that cannot run here, and why: it counts as no test.
not_run() {
  say "NOT RUN: $*"
  echo '0 passed, 0 failed' >"$count"
}
# Packages and the systems that they are tried in take some gigabytes. Where the disk has not so much left, the programs of the step
# "unit" make room: nothing behind it needs them.
make_room() {
  local free
  free=$(df --output=avail --block-size=1M . | tail -n 1)
  if [ "$free" -lt 6144 ] && [ -d target/debug ]; then
    say "$free MB are free: target/debug is removed"
    rm -rf target/debug
  fi
}
# The Debian package, tried in a fresh system of this machine's release.
step_deb() {
  if [ "$(id -u)" != 0 ]; then
    not_run "a fresh system needs root"
    return
  fi
  make_room
  scripts/deb.sh
  scripts/deb-test.sh | tee "$logs/deb"
  tail -n 1 "$logs/deb" >"$count"
}
# The other series of the server, in its own release of Debian: a part of Strata's tests, in full by
# 'scripts/chroot.sh trixie run scripts/mtr.sh strata'. The Rust library is the one that was built here.
step_other() {
  local rc=0 tests
  if [ "$(id -u)" != 0 ]; then
    not_run "another release of Debian needs root"
    return
  fi
  if ! grep -q bookworm /etc/os-release; then
    not_run "this release has the newer series itself"
    return
  fi
  scripts/chroot.sh trixie make || rc=$?
  # An archive without trixie at all is an error; one that has its packages but not the source of this very version may just be updated.
  if [ $rc = 3 ]; then
    not_run "the archive has no source for the server of Debian 13, without whose headers no plugin can be compiled"
    return
  fi
  [ $rc = 0 ] || return $rc
  scripts/chroot.sh trixie run make --no-print-directory -j2 plugin
  mapfile -t tests < <(sed -e 's/#.*//' -e 's/[[:space:]]//g' -e '/^$/d' mysql-test/other-server.list)
  rm -f target/trixie/mtr-results/last-count
  timeout 600 scripts/chroot.sh trixie run scripts/mtr.sh strata "${tests[@]}" || rc=1
  if [ -f target/trixie/mtr-results/last-count ]; then cp target/trixie/mtr-results/last-count "$count"; fi
  return $rc
}
lab_step() {
  local ok=0
  export STRATA_RUN_DIR=$top/target/test-run
  export STRATA_SERVER_SH=$top/scripts/server.sh
  scripts/server.sh remove >/dev/null
  scripts/server.sh start || return 1
  (
    set -a
    eval "$(scripts/server.sh env)"
    set +a
    timeout 600 cargo run --quiet --release -p strata-lab -- "$@"
  ) || ok=1
  if [ $ok = 0 ]; then
    scripts/server.sh remove || ok=1
  else
    tail -n 60 "$STRATA_RUN_DIR/mariadbd.log" || true
    scripts/server.sh stop || scripts/server.sh kill || true
  fi
  unset STRATA_RUN_DIR
  return $ok
}

run_step() {
  local s=$1 began=$SECONDS rc=0 p=0 f=0 word
  if [ -n "${needs[$s]:-}" ] && [ "${state[${needs[$s]}]:-pass}" = fail ]; then
    state[$s]=fail
    bad+=("$s")
    failed=$((failed + 1))
    printf '==== %s: not run, because %s failed\n' "$s" "${needs[$s]}"
    return
  fi
  printf '==== %s\n' "$s"
  rm -f "$count"
  # In a shell of its own, with errexit in force (which it is not within "if"). No pipe: a server that a step left running would hold it open.
  set +e
  (
    set -euo pipefail
    "step_$s"
  ) </dev/null > >(tee "$logs/output-$s") 2>&1
  rc=$?
  set -e
  if [ -f "$count" ]; then
    read -r p _ f _ <"$count"
  fi
  case $rc in
    0)
      word=passed
      state[$s]=pass
      [ -f "$count" ] || p=1
      ;;
    *)
      word=FAILED
      state[$s]=fail
      bad+=("$s")
      if [ "$f" -eq 0 ]; then f=1; fi
      ;;
  esac
  passed=$((passed + p))
  failed=$((failed + f))
  printf '==== %s: %s, %s s (%s passed, %s failed)\n' "$s" "$word" "$((SECONDS - began))" "$p" "$f"
}

rm -f target/test-summary
if [ $# -eq 0 ]; then set -- "${all[@]}"; fi
for s in "$@"; do
  declare -F "step_$s" >/dev/null || die "there is no step $s; the steps are: ${all[*]}"
done
for s in "$@"; do run_step "$s"; done

printf '%s passed, %s failed\n' "$passed" "$failed" >target/test-summary
if [ ${#bad[@]} -gt 0 ]; then
  # Again at the end, where it is found in a long log: the last words of what failed.
  for s in "${bad[@]}"; do
    [ ! -f "$logs/output-$s" ] || tail -n 12 "$logs/output-$s" | cut -c 1-200 | sed "s/^/$s: /"
  done
  say "FAILED after $SECONDS s: ${bad[*]}"
  exit 1
fi
say "all passed, in $SECONDS s"
