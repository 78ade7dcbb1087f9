#!/usr/bin/env bash
# Runs MariaDB's regression tests against Strata, in a private copy of the
# packaged test tree (target/mtr-root) with servers, ports and data of its own.
#
#   mtr.sh strata [TEST...]               Strata's own suite; a skipped test is a failure
#   mtr.sh se [--engine=E] [TEST...]      storage_engine with trx and parts
#   mtr.sh engines [--engine=E] [TEST...] engines/funcs and engines/iuds
#   mtr.sh features [--engine=E] [SUITE|TEST...]
#                                         generated columns, versioning, periods, sequences,
#                                         partitions, foreign keys, ALTER TABLE: the server's
#                                         tests that concern the engine, as copies that name E
#                                         where they name InnoDB (see features_root)
#   mtr.sh binlog|rpl [--engine=E] [TEST...]
#                                         in the same way the tests of those suites that take
#                                         the default engine. After a run with InnoDB its
#                                         failures are excused
#   mtr.sh vector [--engine=E] [TEST...]  the server's tests of VECTOR indexes (11.8), as copies that
#                                         name E where they name InnoDB
#   mtr.sh slice [--engine=E]             the tests in mysql-test/slice.list
#   mtr.sh compare [--rerun-innodb]       se and engines with Strata and InnoDB, as a table
#                                         in target/suites-report.txt
#   mtr.sh baseline                       runs se and engines with InnoDB and stores the
#                                         tests it passes in mysql-test/baseline
#   mtr.sh report                         the table again, from the last runs' results
#   mtr.sh root                           only prepares the tree, and prints its test folder
#
# E is STRATA (the default) or InnoDB; both get the same options, but for the
# plugin, which is not loaded for InnoDB. With TESTs given (as mtr takes them:
# basic, storage_engine/trx-strata.insert) only these are run. Everything after "--" goes to mtr as it is, for example
#   mtr.sh strata basic -- --record
# With "-- --force" a test goes on behind a statement that fails, so that its output shows all differences.
#
# Environment: STRATA_MTR_PARALLEL (2), STRATA_MTR_ROOT (target/mtr-root),
# STRATA_MTR_VAR (/tmp/strata-mtr.UID/...; keep it short, a socket lies in it).
set -euo pipefail
me=mtr
# shellcheck source=scripts/lib.sh
. "$(dirname "$0")/lib.sh"
load_env

results=$top/target/mtr-results
parallel=${STRATA_MTR_PARALLEL:-2}
baseline=$top/mysql-test/baseline/innodb-$MARIADB_VERSION.txt

#---------------------------------------------------------------- the tree

# in_root DIR: the tree all that follows works in.
in_root() {
  local id
  root=$1
  tests=$root/${MARIADB_TEST_DIR#/usr/}
  id=$(printf '%s' "$root" | cksum | cut -d' ' -f1)
  var=${STRATA_MTR_VAR:-/tmp/strata-mtr.$(id -u)/$id}
}
in_root "${STRATA_MTR_ROOT:-$top/target/mtr-root}"

build_root() {
  local want="$MARIADB_PACKAGE_VERSION" share f
  share=$(dirname "$MARIADB_TEST_DIR")
  if [ "$(cat "$root/.version" 2>/dev/null)" != "$want" ]; then
    say "copying the test tree of $want"
    rm -rf "$root"
    mkdir -p "$root/lib/mysql/plugin" "$(dirname "$tests")"
    ln -s /usr/bin "$root/bin"
    ln -s /usr/sbin "$root/sbin"
    ln -s "/usr/lib/$(dpkg-architecture -qDEB_HOST_MULTIARCH)" "$root/lib/"
    ln -s "$MARIADB_PLUGIN_DIR"/*.so "$root/lib/mysql/plugin/"
    for f in "$share"/*; do
      [ "$f" = "$MARIADB_TEST_DIR" ] || ln -s "$f" "$(dirname "$tests")/"
    done
    cp -a "$MARIADB_TEST_DIR" "$tests"
    # Suppressed in the tests already, but not when a server is stopped.
    sed -i --follow-symlinks \
      's/^     @global_suppressions,$/&\n     qr|Plugin .* is of maturity level|,/' "$tests/mtr"
    # The database test has another character set in 11.8; Strata's own tests have one result for all versions.
    # shellcheck disable=SC2016
    sed -i --follow-symlinks -E \
      's/(DATABASE IF NOT EXISTS test CHARACTER SET )(utf8mb4 COLLATE \w+)/\1" . ($ENV{STRATA_TEST_CHARSET} || "\2") . "/' "$tests/mtr"
    printf '%s\n' "$want" >"$root/.version"
  fi
  copy_plugin "$root/lib/mysql/plugin"
  # The checkout's overlay and suite, as they are now.
  rm -rf "$tests/plugin/strata" "$tests/plugin/strata_innodb" "$tests/suite/strata"
  cp -r "$top/mysql-test/plugin/strata" "$tests/plugin/strata"
  cp -r "$top/mysql-test/suite/strata" "$tests/suite/strata"
  add_series
  # The same overlay for InnoDB, less what Strata says about its own results.
  cp -r "$top/mysql-test/plugin/strata" "$tests/plugin/strata_innodb"
  find "$tests/plugin/strata_innodb" \( -name '*.rdiff' -o -name '*.result' -o -name disabled.def \) -delete
  # shellcheck disable=SC2016
  sed -i 's/^let \$ENGINE = STRATA;/let $ENGINE = InnoDB;/' \
    "$tests/plugin/strata_innodb/storage_engine/define_engine.inc"
  # InnoDB is measured in the packaged server as it is.
  # shellcheck disable=SC2016
  find "$tests/plugin/strata_innodb" -name suite.opt \
    -exec sed -i 's/--plugin-load-add=\$HA_STRATA_SO//' {} +
}

# What the server's series alone has (tests), and what it answers otherwise than the first one that the suite was made with (differences
# of results): mysql-test/series/SERIES.
add_series() {
  local f dir=$top/mysql-test/series/${MARIADB_VERSION%.*}
  for f in "$dir"/*; do
    case $f in
      *.test) cp "$f" "$tests/suite/strata/t/" ;;
      *.result) cp "$f" "$tests/suite/strata/r/" ;;
      *.rdiff) patch -s "$tests/suite/strata/r/$(basename "$f" .rdiff).result" "$f" || die "$f does not fit any more" ;;
    esac
  done
}

# Takes the results that a run has recorded into the checkout: of another series than the first what differs.
keep_recorded() {
  local f name dir=$top/mysql-test/series/${MARIADB_VERSION%.*} of_all=$top/mysql-test/suite/strata/r
  for f in "$tests"/suite/strata/r/*.result; do
    name=$(basename "$f" .result)
    if [ -f "$dir/$name.test" ]; then
      cp "$f" "$dir/"
    elif [ -d "$dir" ]; then
      diff -u --label "r/$name.result" --label "series/${MARIADB_VERSION%.*}" "$of_all/$name.result" "$f" >"$dir/$name.rdiff" ||
        continue
      rm "$dir/$name.rdiff"
    else
      cp "$f" "$of_all/"
    fi
  done
}

# One run at a time in one tree: results are taken from it.
lock_root() {
  mkdir -p "$(dirname "$root")" "$results"
  exec 7>"$root.lock"
  flock -n 7 || {
    say "waiting for another run in $root"
    flock 7
  }
  build_root
}

need_plugin() {
  [ -f "$plugin_so" ] || die "there is no $plugin_so; run 'make plugin' first"
}

#---------------------------------------------------------------- a run

# Reads mtr's output and prints STATUS<TAB>TEST lines; TEST is without overlay
# and engine: storage_engine/trx.insert, engines/funcs.rpl_alter,mix
# Of a test that was run more than once the worst counts.
summarize() {
  perl -ne '
    if (/^(\S+\.\S+)\s+(?:\x27([^\x27]*)\x27\s+)?(?:w\d+\s+)?\[ (pass|fail|skipped|disabled|retry-pass|retry-fail|exp-fail)\s/) {
      my ($t, $c, $s) = ($1, $2 // "", $3);
      $t =~ s/-strata(?:_innodb)?\././;
      $s = "pass" if $s eq "retry-pass";
      $s = "fail" if $s =~ /-fail$/;
      my @c = grep { !/default.storage.engine|^innodb$|^myisam$|^strata$/i } split /,/, $c;
      $t = join(",", $t, @c);
      my %rank = (pass => 1, disabled => 2, skipped => 2, fail => 3);
      $seen{$t} = $s if !$seen{$t} || $rank{$s} > $rank{$seen{$t}};
    }
    END { print "$seen{$_}\t$_\n" for sort keys %seen }
  ' "$1"
}

count() { awk -F'\t' -v s="$1" '$1 == s { n++ } END { print n + 0 }' "$2"; }

# run NAME ENGINE MTR-OPTIONS...: runs mtr; the results go to
# target/mtr-results/NAME-ENGINE.{out,tsv}, the actual output of tests that
# failed to NAME-ENGINE.reject/. Returns 0 whatever the tests did, as long as
# any was run.
run() {
  local name=$1 engine=$2
  shift 2
  local base=$results/$name-$engine began=$SECONDS f to try
  find "$tests/suite" "$tests/plugin" "$tests/main" -name '*.reject' -delete
  mkdir -p "$var"
  rm -rf "$base.reject" "$base.tsv"
  for try in 1 2; do
    (cd "$tests" && ./mtr --vardir="$var/$name" --force --max-test-fail=0 --retry=0 \
      --max-save-core=0 --max-save-datadir=1 --parallel="$parallel" \
      --testcase-timeout=3 --suite-timeout=600 "$@" </dev/null) >"$base.out" 2>&1 7>&- || true
    # Once in a while mtr ends in the middle, when a worker has gone.
    grep '^Completed:' "$base.out" >/dev/null && break
    [ "$try" = 2 ] || say "mtr stopped before its end; running it again"
  done
  summarize "$base.out" >"$base.tsv"
  while read -r f; do
    to=${f#"$tests/"}
    to=$(sed -E 's,^(suite|plugin/strata(_innodb)?)/,,; s,/(r|t)/,/,' <<<"$to")
    mkdir -p "$base.reject/$(dirname "$to")"
    cp "$f" "$base.reject/$to"
  done < <(find "$tests/suite" "$tests/plugin" "$tests/main" -name '*.reject')
  if [ ! -s "$base.tsv" ]; then
    tail -n 40 "$base.out" >&2
    die "mtr ran no test; its output is in $base.out"
  fi
  say "$name, $engine: $(count pass "$base.tsv") passed, $(count fail "$base.tsv") failed," \
    "$(count skipped "$base.tsv") skipped, $(count disabled "$base.tsv") disabled," \
    "$((SECONDS - began)) s ($base.out)"
}

# verdict NAME-ENGINE [strict [TEST...]]: fails when the run had a failure, with
# "strict" also when a test was skipped or is missing from the TESTs.
verdict() {
  local tsv=$results/$1.tsv bad
  if [ "${2:-}" = strict ]; then
    bad=$(awk -F'\t' '$1 != "pass"' "$tsv"
      comm -23 <(printf '%s\n' "${@:3}" | sed '/^$/d' | sort -u) <(cut -f2 "$tsv" | sed 's/,.*//' | sort -u) |
        sed 's/^/not run\t/')
  else
    bad=$(awk -F'\t' '$1 == "fail"' "$tsv")
  fi
  if [ -n "$bad" ]; then
    # What mtr said about the failures, for a reader of a log only.
    cat "$results/$1.out" "$results/${1%-*}"-{named,default,foreign}-"${1##*-}.out" 2>/dev/null |
      grep -vE '\[ (pass|disabled) ' | tail -n 150 >&2 || true
    printf '%s\n' "$bad" | sed "s/^/$me: /" >&2
    # Where the first of them began to differ.
    sed -n '/^CURRENT_TEST/,/^$/p' "$results/$1.out" 2>/dev/null | grep -E -m 8 '^[-+]|^mysqltest' >&2 || true
  fi
  printf '%s passed, %s failed\n' "$(count pass "$tsv")" "$(grep -c . <<<"$bad" || true)" \
    >"$results/last-count"
  [ -z "$bad" ]
}

overlay_of() { case $1 in STRATA) echo strata ;; *) echo strata_innodb ;; esac; }

run_se() {
  local engine=$1 o
  shift
  o=$(overlay_of "$engine")
  if [ ${#only[@]} -gt 0 ]; then
    run "${name:-se}" "$engine" --suite="storage_engine-$o,storage_engine/parts-$o,storage_engine/trx-$o" \
      "$@" "${only[@]}"
  else
    run "${name:-se}" "$engine" --suite="storage_engine-$o,storage_engine/parts-$o,storage_engine/trx-$o" "$@"
  fi
}

run_engines() {
  local engine=$1 load=()
  shift
  [ "$engine" = InnoDB ] || load=(--mysqld=--plugin-load-add=ha_strata.so)
  run "${name:-engines}" "$engine" --combination="--default-storage-engine=$engine" \
    --mysqld=--innodb --mysqld=--partition "${load[@]}" \
    --suite=engines/funcs,engines/iuds "$@" "${only[@]}"
}

# The suites of command $1.
suites_of() {
  case $1 in
    features) echo gcol vcol versioning period sql_sequence parts innodb main rpl binlog ;;
    *) echo "$1" ;;
  esac
}

# The folder of suite $2 in a tree's test folder $1.
suite_dir() { if [ "$2" = main ]; then echo "$1/main"; else echo "$1/suite/$2"; fi; }

# The tests of suite $1 that concern the engine. $2 = foreign: of main those that ask for InnoDB and do not name its internals, and of main, rpl and
# binlog those that ask for InnoDB and have foreign keys; of innodb those that do not name its internals, and those on foreign keys, on
# ALTER TABLE and on indexes, by their names. $2 = named: they ask for InnoDB, or run
# once with each of several default engines. $2 = default: they take the default engine, which
# nothing but their result names; of sql_sequence all, which name engines in passing. Tests
# that need a debug build are left out.
feature_tests() {
  local other='\b(myisam|aria|rocksdb|memory|heap|archive|csv|merge|blackhole|federated|s3)\b|have_debug'
  local named='have_innodb|engines\.inc' engine='\binnodb\b'
  [ "$1" != versioning ] || named="$named|$engine" # common.inc asks for it
  (
    cd "$(suite_dir "$MARIADB_TEST_DIR" "$1")"
    [ ! -d t ] || cd t
    case $1.$2 in
      innodb.foreign)
        { printf '%s\n' ./*.test | grep -E "^\./($of_innodb)"; grep -LiE "$internals" ./*.test; } | sort -u | xargs grep -Li have_debug
        ;;
      *.foreign)
        { grep -liE 'foreign +key' ./*.test; [ "$1" != main ] || grep -LiE "$internals" ./*.test; } | sort -u |
          xargs grep -l have_innodb | xargs grep -Li have_debug
        ;;
      sql_sequence.named | rpl.named | binlog.named) ;;
      sql_sequence.default) grep -LiE '\b(aria|archive)\b|have_debug' ./*.test ;;
      *.named) grep -liE "$named" ./*.test | xargs grep -Li have_debug ;;
      *.default) grep -LiE "$named|$engine|$other|engine *=" ./*.test ;;
    esac
  ) | sed "s,^\./,$1.,; s/\.test\$//"
}

# What names InnoDB's internals: its tables, metrics, files, variables of the server, kinds of rows and of indexes that it alone has.
internals='innodb_sys_|innodb_metrics|innodb_(table|index)_stats|\.ibd|ibdata|tablespace|have_big|big_test|engine +innodb +status|fulltext|spatial'
internals+='|(global|@@)[. ]*innodb_|key_block_size|row_format|innodb_page_size'

# The files that tests of suite $1 of kind $2 include and that name InnoDB, below the test folder. Those that ask for the engine or for its
# state are not among them.
included_by() {
  local name
  feature_tests "$1" "$2" | while read -r name; do
    cat "$(suite_dir "$MARIADB_TEST_DIR" "$1")"/{,t/}"${name#*.}.test" 2>/dev/null || true
  done | sed -nE 's/^[[:space:]]*(--[[:space:]]*)?source[[:space:]]+([^[:space:];]+).*/\2/Ip' | sort -u | while read -r name; do
    for name in "$name" "suite/$1/$name" "suite/$1/t/$name"; do
      case $name in *have_* | *wait_all_purged* | *no_checkpoint*) continue ;; esac
      if grep -qiwE innodb "$MARIADB_TEST_DIR/$name" 2>/dev/null; then echo "$name"; fi
    done
  done
}

# Beginnings of the names of the tests of suite innodb that are run.
of_innodb='add_constraint|add_foreign_key|alter_|create-index|fk_|foreign|index_|innodb-alter|innodb-fk|innodb-get-fk|innodb-index'
of_innodb+='|innodb-online-alter|innodb-wl5980|innodb_bulk_create_index|innodb_rename_index|instant_|online_table_rebuild|stored_fk'
of_innodb+='|table_index_statistics|truncate_foreign'

# Which kinds of feature_tests suite $2 has in command $1.
kinds_of() {
  case $1.$2 in
    features.innodb | features.main | features.rpl | features.binlog) echo foreign ;;
    *) echo named default ;;
  esac
}

# Prepares the tree for E=$1 and the suites $2...: as packaged, run with E only where a file
# of combinations names several engines; E's name instead of InnoDB's, in tests that take
# the default engine instead of MyISAM's also. With InnoDB the former changes nothing. (What
# rpl and binlog include from elsewhere may name InnoDB: there only MyISAM is replaced.)
features_root() {
  local command=$1 engine=$2 suite dir kind name names files included
  shift 2
  for suite in "$@"; do
    names=InnoDB,MyISAM
    case $suite in rpl | binlog) names=MyISAM ;; esac
    dir=$(suite_dir "$tests" "$suite")
    rm -rf "$dir"
    cp -a "$(suite_dir "$MARIADB_TEST_DIR" "$suite")" "$dir"
    if [ "$(kinds_of "$command" "$suite")" = foreign ]; then
      # One size of InnoDB's pages: they mean nothing to another engine.
      find "$tests/include" -name 'innodb_page_size*.combinations' -exec perl -0777 -i -pe \
        '$_ = join "", grep /^\[16k\]/, split /(?=^\[)/m' {} +
      mapfile -t included < <(included_by "$suite" foreign)
      for name in "${included[@]}"; do
        cp "$MARIADB_TEST_DIR/$name" "$tests/$name"
        [ "$engine" = InnoDB ] || "$top/scripts/rename-engine.pl" InnoDB "$engine" "$tests/$name"
      done
      [ "$engine" = InnoDB ] || while read -r name; do
        name=${name#*.}
        files=$(find "$dir" -name "$name.test" -o -name "$name.result" -o -name "$name,*" -o -name "$name.opt" -o -name "$name.inc")
        # shellcheck disable=SC2086
        "$top/scripts/rename-engine.pl" InnoDB "$engine" $files
      done < <(feature_tests "$suite" foreign)
      continue
    fi
    find "$dir" -name '*.combinations' -exec perl -0777 -i -pe \
      '$_ = join "", grep !/default-storage-engine=(?!innodb)/, split /(?=^\[)/m' {} +
    while read -r name; do
      name=${name#*.}
      files=$(find "$dir" -name "$name.test" -o -name "$name.result" -o -name "$name,*" -o -name "$name.opt")
      # shellcheck disable=SC2086
      "$top/scripts/rename-engine.pl" "$names" "$engine" $files
    done < <(feature_tests "$suite" default)
    [ "$engine" = InnoDB ] || [ "$names" = MyISAM ] || find "$dir" -type f -regextype posix-extended \
      -regex '.*\.(test|inc|pre|result|rdiff|combinations|opt|cnf)' \
      -exec "$top/scripts/rename-engine.pl" InnoDB "$engine" {} +
  done
}

# run_features COMMAND E MTR-OPTIONS...: leaves COMMAND-SUITE-E.tsv for each suite.
run_features() {
  local base=$results/${name:-$1} engine=$2 load=() suite suites
  local command=$1 given=("${only[@]}") named=() default=() foreign=()
  read -ra suites < <(suites_of "$1")
  set -- "${name:-$1}" "${@:3}"
  [ "$engine" = InnoDB ] || load=(--mysqld=--plugin-load-add=ha_strata.so)
  features_root "$command" "$engine" "${suites[@]}"
  for suite in "${suites[@]}"; do
    if [ "$(kinds_of "$command" "$suite")" = foreign ]; then
      mapfile -t -O ${#foreign[@]} foreign < <(feature_tests "$suite" foreign | chosen "${given[@]}")
      continue
    fi
    mapfile -t -O ${#named[@]} named < <(feature_tests "$suite" named | chosen "${given[@]}")
    mapfile -t -O ${#default[@]} default < <(feature_tests "$suite" default | chosen "${given[@]}")
  done
  rm -f "$base"-{named,default,foreign}-"$engine".tsv
  if [ ${#named[@]} -gt 0 ]; then
    run "$1-named" "$engine" --mysqld=--partition "${load[@]}" "${@:2}" "${named[@]}"
  fi
  if [ ${#default[@]} -gt 0 ]; then
    run "$1-default" "$engine" --mysqld="--default-storage-engine=$engine" \
      --mysqld=--innodb --mysqld=--partition "${load[@]}" "${@:2}" "${default[@]}"
  fi
  if [ ${#foreign[@]} -gt 0 ]; then
    run "$1-foreign" "$engine" --mysqld=--partition "${load[@]}" "${@:2}" "${foreign[@]}"
  fi
  cat "$base"-{named,default,foreign}-"$engine".tsv 2>/dev/null | sort -k2 >"$base-$engine.tsv"
  for suite in "${suites[@]}"; do
    grep -P "\t$suite\." "$base-$engine.tsv" >"$base-$suite-$engine.tsv" || rm -f "$base-$suite-$engine.tsv"
  done
}

# The server's tests of VECTOR indexes as a suite of their own: without those of other engines, of a debug build, and of links to
# tables' files.
vector_root() {
  local dir=$tests/suite/vector f
  rm -rf "$dir"
  mkdir -p "$dir"
  for f in "$MARIADB_TEST_DIR"/main/vector*; do
    case $(basename "$f") in
      vector.combinations | vector,* | vector_aria.* | vector_debug.* | vector_symlink.*) ;;
      *) cp "$f" "$dir/" ;;
    esac
  done
  [ "$1" = InnoDB ] || "$top/scripts/rename-engine.pl" InnoDB "$1" "$dir"/*
}

# Of the tests on standard input those of the SUITEs and TESTs given; all without any.
chosen() {
  [ $# -gt 0 ] || { cat; return; }
  awk -v given=" $* " '{ suite = $1; sub(/\..*/, "", suite) } index(given, " " $1 " ") || index(given, " " suite " ")'
}

# What InnoDB passes and Strata does not, of suite $1; fails if there is any.
against_innodb() {
  local lost
  lost=$(comm -23 <(passes "$results/$1-InnoDB.tsv") <(passes "$results/$1-STRATA.tsv"))
  say "$1: InnoDB passes $(count pass "$results/$1-InnoDB.tsv"), of these Strata all but $(grep -c . <<<"$lost" || true)"
  [ -z "$lost" ] || { printf '%s\n' "$lost" | sed "s/^/$me: /"; false; }
}

# The tests of slice.list that InnoDB of this series passes, in mtr's spelling; $1: se or engines, $2: engine
slice_tests() {
  local o
  o=$(overlay_of "$2")
  sed -e 's/#.*//' -e 's/[[:space:]]//g' -e '/^$/d' "$top/mysql-test/slice.list" |
    if [ -f "$baseline" ]; then grep -xFf "$baseline"; else cat; fi |
    case $1 in
      se) sed -n "s/^\(storage_engine[^.]*\)\./\1-$o./p" ;;
      engines) sed -n 's/^engines/&/p' ;;
    esac
}

#---------------------------------------------------------------- InnoDB and Strata

passes() { cat "$@" | awk -F'\t' '$1 == "pass" { print $2 }' | sort -u; }

store_baseline() {
  mkdir -p "$(dirname "$baseline")"
  {
    echo "# Tests of storage_engine and engines that InnoDB of MariaDB $MARIADB_VERSION passes"
    echo "# in scripts/mtr.sh (plain overlay). Written by 'scripts/mtr.sh baseline'."
    passes "$results/se-InnoDB.tsv" "$results/engines-InnoDB.tsv"
  } >"$baseline.new"
  mv "$baseline.new" "$baseline"
  say "stored $(grep -vc '^#' "$baseline") tests in ${baseline#"$top/"}"
}

# One line of the table: $1 group (a regular expression), $2 its name
report_line() {
  local innodb strata both
  innodb=$(grep -cE "$1" "$tmp/innodb" || true)
  strata=$(grep -cE "$1" "$tmp/strata" || true)
  both=$(comm -12 "$tmp/innodb" "$tmp/strata" | grep -cE "$1" || true)
  printf '%-24s %14s %14s %14s\n' "$2" "$innodb" "$both" "$strata"
}

# Tests that fail with both engines, yet with the same output but for the
# engine's name: the shipped result is out of date, not the engine wrong.
same_output() {
  local f g
  for s in se engines; do
    [ -d "$results/$s-STRATA.reject" ] || continue
    (cd "$results/$s-STRATA.reject" && find . -name '*.reject') | while read -r f; do
      f=${f#./}
      g=$results/$s-InnoDB.reject/$f
      [ -f "$g" ] || continue
      if cmp -s <(sed 's/STRATA/<ENGINE>/Ig' "$results/$s-STRATA.reject/$f") \
        <(sed 's/InnoDB/<ENGINE>/Ig' "$g"); then
        f=${f%.reject}
        printf '%s.%s\n' "$(dirname "$f")" "$(basename "$f")"
      fi
    done
  done | sort -u
}

report() {
  tmp=$(mktemp -d)
  [ -f "$baseline" ] || die "there is no $baseline; run 'mtr.sh baseline'"
  grep -v '^#' "$baseline" | sort -u >"$tmp/innodb"
  passes "$results/se-STRATA.tsv" "$results/engines-STRATA.tsv" >"$tmp/strata"
  same_output >"$tmp/same"
  {
    echo "MariaDB $MARIADB_VERSION, tests passed with InnoDB and with STRATA"
    echo
    printf '%-24s %14s %14s %14s\n' suite 'InnoDB passes' 'STRATA of them' 'STRATA in all'
    report_line '^storage_engine\.' storage_engine
    report_line '^storage_engine/trx\.' storage_engine/trx
    report_line '^storage_engine/parts\.' storage_engine/parts
    report_line '^engines/funcs\.' engines/funcs
    report_line '^engines/iuds\.' engines/iuds
    report_line '.' together
    echo
    echo "InnoDB passes and STRATA does not: $(comm -23 "$tmp/innodb" "$tmp/strata" | grep -c . || true)"
    comm -23 "$tmp/innodb" "$tmp/strata" | while read -r t; do
      s=$(awk -F'\t' -v t="$t" '$2 == t { print $1 }' "$results"/{se,engines}-STRATA.tsv)
      printf '  %s\t%s\n' "$t" "${s:-not run}"
    done
    echo
    echo "Neither passes, and both print the same: $(grep -c . "$tmp/same" || true)"
    sed 's/^/  /' "$tmp/same"
  } >"$top/target/suites-report.txt"
  rm -rf "$tmp"
  cat "$top/target/suites-report.txt"
}

#---------------------------------------------------------------- main

cmd=${1:-}
[ $# -gt 0 ] && shift
engine=STRATA
rerun=
only=()
extra=()
while [ $# -gt 0 ]; do
  case $1 in
    --engine=*) engine=${1#--engine=} ;;
    --rerun-innodb) rerun=1 ;;
    --) shift; extra=("$@"); break ;;
    -*) die "unknown option $1" ;;
    *) only+=("$1") ;;
  esac
  shift
done
case ${engine,,} in
  strata) engine=STRATA ;;
  innodb) engine=InnoDB ;;
  *) die "the engine is STRATA or InnoDB, not $engine" ;;
esac

case $cmd in
  root)
    lock_root
    echo "$tests"
    ;;
  strata)
    need_plugin
    lock_root
    export STRATA_TEST_CHARSET='latin1 COLLATE latin1_swedish_ci'
    run own STRATA --suite=strata "${extra[@]}" "${only[@]}"
    # With --record: bring the results home.
    if [[ " ${extra[*]} " == *" --record "* ]]; then
      keep_recorded
    fi
    if [ ${#only[@]} -eq 0 ]; then
      mapfile -t only < <(cd "$tests/suite/strata/t" && printf '%s\n' *.test | sed 's/^/strata./; s/\.test$//')
      verdict own-STRATA strict "${only[@]}"
    else
      verdict own-STRATA strict
    fi
    ;;
  se | engines)
    [ "$engine" = InnoDB ] || need_plugin
    lock_root
    if [ ${#only[@]} -gt 0 ]; then name=$cmd-some; fi
    "run_$cmd" "$engine" "${extra[@]}"
    verdict "${name:-$cmd}-$engine"
    ;;
  features | binlog | rpl)
    [ "$engine" = InnoDB ] || need_plugin
    in_root "$root-renamed"
    lock_root
    if [ ${#only[@]} -gt 0 ]; then name=$cmd-some; fi
    run_features "$cmd" "$engine" "${extra[@]}"
    if [ "${name:-}$engine" = STRATA ] && [ -f "$results/$cmd-InnoDB.tsv" ]; then
      ok=1
      for s in $(suites_of "$cmd"); do against_innodb "$cmd-$s" || ok=0; done
      [ "$ok" = 1 ]
    else
      verdict "${name:-$cmd}-$engine"
    fi
    ;;
  vector)
    [ -f "$MARIADB_TEST_DIR/main/vector.test" ] || die "MariaDB $MARIADB_VERSION has no VECTOR indexes"
    load=(--mysqld=--plugin-load-add=ha_strata.so)
    if [ "$engine" = InnoDB ]; then load=(); else need_plugin; fi
    in_root "$root-renamed"
    lock_root
    vector_root "$engine"
    run vector "$engine" --suite=vector --mysqld="--default-storage-engine=$engine" --mysqld=--innodb --mysqld=--partition \
      "${load[@]}" "${extra[@]}" "${only[@]}"
    verdict "vector-$engine"
    ;;
  slice)
    [ "$engine" = InnoDB ] || need_plugin
    lock_root
    passed=0 failed=0 ok=1
    for s in se engines; do
      mapfile -t only < <(slice_tests "$s" "$engine")
      [ ${#only[@]} -gt 0 ] || continue
      name=slice-$s
      "run_$s" "$engine" "${extra[@]}"
      mapfile -t only < <(printf '%s\n' "${only[@]}" | sed 's/-strata[_a-z]*\././')
      verdict "slice-$s-$engine" strict "${only[@]}" || ok=0
      read -r p _ f _ <"$results/last-count"
      passed=$((passed + p)) failed=$((failed + f))
    done
    printf '%s passed, %s failed\n' "$passed" "$failed" >"$results/last-count"
    [ "$ok" = 1 ]
    ;;
  baseline)
    lock_root
    run_se InnoDB "${extra[@]}"
    run_engines InnoDB "${extra[@]}"
    store_baseline
    ;;
  compare)
    need_plugin
    lock_root
    if [ -n "$rerun" ] || [ ! -f "$baseline" ]; then
      run_se InnoDB "${extra[@]}"
      run_engines InnoDB "${extra[@]}"
      store_baseline
    elif [ ! -d "$results/se-InnoDB.reject" ]; then
      # For InnoDB's own output of the tests that it does not pass either.
      run_se InnoDB "${extra[@]}"
    fi
    run_se STRATA "${extra[@]}"
    run_engines STRATA "${extra[@]}"
    report
    ;;
  report) report ;;
  *)
    sed -n '2,/^set -euo/{/^set -euo/d;s/^# \{0,1\}//;p}' "$0"
    exit 2
    ;;
esac
