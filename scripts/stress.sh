#!/usr/bin/env bash
# The server's stress suite for REPEATABLE READ, engines/rr_trx, on a private server.
#
#   stress.sh [--engine=E] [SECONDS]      E: STRATA (the default) or InnoDB; 120 seconds
#
# Ten sessions play its fifteen tests at random; each looks for what its transaction must
# not see, and copes with deadlocks and waits that take too long by itself. Any error that
# it reports fails the run; so does a row that breaks the suite's own conditions afterwards
# (check_consistency.sql), or CHECK TABLE. The log stays in target/stress-E/work.
#
# The suite is older than the server, and put right in a copy, for each engine alike:
#   - a parameter is called "rows", a reserved word now
#   - CONNECTION_ID() has become unsigned: sql_mode NO_UNSIGNED_SUBTRACTION
#   - INSERT IGNORE tells its duplicates as warnings: not shown
#   - the output of the preparation (SHOW CREATE TABLE) is not compared
set -euo pipefail
me=stress
# shellcheck source=scripts/lib.sh
. "$(dirname "$0")/lib.sh"
load_env

engine=STRATA seconds=120
for argument in "$@"; do
  case $argument in
    --engine=*) engine=${argument#--engine=} ;;
    [0-9]*) seconds=$argument ;;
    *) die "unknown argument $argument" ;;
  esac
done
export STRATA_RUN_DIR=$top/target/stress-$engine
"$top/scripts/server.sh" remove >/dev/null
"$top/scripts/server.sh" start >/dev/null
trap '"$top/scripts/server.sh" stop >/dev/null' EXIT
socket=$("$top/scripts/server.sh" env | sed -n 's/^STRATA_SOCKET=//p' | tr -d "'\"")
suite=$MARIADB_TEST_DIR/suite/engines/rr_trx
work=$STRATA_RUN_DIR/work
mkdir -p "$work"
sql() { mariadb --no-defaults --socket="$socket" --user=root -N test "$@"; }

sql -e "SET GLOBAL sql_mode = 'no_engine_substitution,no_unsigned_subtraction', GLOBAL innodb_lock_wait_timeout = 2,
  GLOBAL strata_lock_wait_timeout = 2"
sed "s/'InnoDB'/'$engine'/; s,suite/engines/rr_trx/include,$work," "$suite/t/init_innodb.test" >"$work/init.test"
sed 's/rows INT/number INT/; s/> rows/> number/' "$suite/include/rr_init.test" >"$work/rr_init.test"
(cd "$MARIADB_TEST_DIR" && mariadb-test --no-defaults --socket="$socket" --user=root --database=test --silent \
  --tmpdir="$work" --logdir="$work" --test-file="$work/init.test") >"$work/init.out"
[ "$(sql -e "SELECT engine FROM information_schema.tables WHERE table_schema = 'test' AND table_name = 't1'")" = "$engine" ] ||
  die "the table is not of $engine"
tree=$work/tree/suite/engines
mkdir -p "$tree"
cp -r "$suite" "$tree/"
sed -i '1i --disable_warnings' "$tree/rr_trx/t/rr_i_40-44.test"
multiples="SELECT COUNT(*) FROM t1 WHERE pk MOD 5 = 0 AND pk BETWEEN 1 AND 1000"
before=$(sql -e "$multiples")

(cd "$MARIADB_TEST_DIR" && perl ./mariadb-stress-test.pl --server-socket="$socket" --server-user=root --server-database=test \
  --stress-suite-basedir="$work/tree" --suite=engines/rr_trx --stress-tests-file="$suite/run.txt" \
  --stress-basedir="$work" --server-logs-dir="$work" --stress-mode=random --mysqltest="$(command -v mariadb-test)" \
  --threads=10 --test-duration="$seconds" --verbose --cleanup --log-error-details --abort-on-error=1) >"$work/stress.out" 2>&1 || true

log=$(echo "$work"/20*/mysql-stress-test.log)
tests=$(grep -cE '^ *[0-9]+ +[0-9]+ engines/rr_trx' "$log")
errors=$(grep -E '^S[0-9]:' "$log" | sort | uniq -c || true)
sum=$(sql -e "SELECT SUM(\`int1\` + int1_key + int1_unique + \`int2\` + int2_key + int2_unique) FROM t1")
broken=$(sql -e "SELECT COUNT(*) FROM t1 WHERE is_uncommitted = 1 OR
  (is_consistent = 1 AND \`int1\` + int1_key + int1_unique + \`int2\` + int2_key + int2_unique <> 0)")
after=$(sql -e "$multiples")
check=$(sql -e "CHECK TABLE t1, statistics" | cut -f4 | sort -u)
say "$engine: $tests tests in $seconds s, $(grep -c . <<<"$errors" || true) kinds of errors; sum $sum, $broken broken rows," \
  "$after of $before rows whose key is a multiple of 5, CHECK TABLE: $check"
[ -z "$errors" ] || die "errors: $errors"
[ "$sum.$broken.$after.$check" = "0.0.$before.OK" ] || die "the rows are not consistent"
