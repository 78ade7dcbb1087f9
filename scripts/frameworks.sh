#!/usr/bin/env bash
# Runs the test suites of Django and SQLAlchemy on a private MariaDB, with InnoDB and with Strata as the default
# engine, and prints the tests that pass with InnoDB and not with Strata, with the reason each gave.
#
#   frameworks.sh --set-up                       downloads both from PyPI, with what their tests need
#   frameworks.sh [OPTION...] [FRAMEWORK]        runs and compares; FRAMEWORK: django, sqlalchemy (default: both)
#   frameworks.sh [OPTION...] FRAMEWORK TEST...  only these: apps or labels of Django's runner (schema,
#                                                schema.tests.SchemaTests.test_x), paths for pytest below SQLAlchemy's
#                                                sources (test/engine)
#
#   --engine=E     InnoDB or STRATA: one run, no comparison
#   --rerun-innodb also where the results of InnoDB's last run are there
#   --renamed      Django, too, takes the engine under test for InnoDB (see below)
#   --jobs=N       processes that run tests at once (2)
#
# Fails if a test was lost. Nothing is installed on the machine: all of it lies in target/frameworks. mysqlclient is
# compiled there with gcc and libmariadb-dev, which setup.sh installs; Python's venv is needed.
#
# The frameworks themselves are taken as they are. In SQLAlchemy's tests the engine under test stands where they name
# InnoDB (scripts/rename-engine.pl). Django asks for the engine's name, and does some things with InnoDB only; with
# --renamed, in a copy, with the engine under test as well. InnoDB is measured in a server without the plugin.
# Results are in target/frameworks/results: FRAMEWORK-E.tsv (outcome, test, reason), and FRAMEWORK-E.out.
# Functions run_* are called by the name of what is run.
# shellcheck disable=SC2317
set -euo pipefail
me=frameworks
# shellcheck source=scripts/lib.sh
. "$(dirname "$0")/lib.sh"

django_version=5.2.19
sqlalchemy_version=2.0.58

dir=$top/target/frameworks
results=$dir/results
python=$dir/venv/bin/python

# Apps of Django's suite whose tests reach the database.
django_apps=(aggregation aggregation_regress annotations async backends basic bulk_create cache composite_pk
  constraints contenttypes_tests custom_columns custom_lookups custom_managers custom_methods
  custom_migration_operations custom_pk datatypes dates datetimes db_functions db_typecasts db_utils defer defer_regress
  delete delete_regress distinct_on_fields empty empty_models expressions expressions_case expressions_window
  extra_regress field_defaults field_subclassing filtered_relation fixtures fixtures_regress force_insert_update
  foreign_object from_db_value generic_relations generic_relations_regress get_earliest_or_latest get_object_or_404
  get_or_create indexes inspectdb introspection known_related_objects lookup m2m_and_m2o m2m_intermediary m2m_multiple
  m2m_recursive m2m_regress m2m_signals m2m_through m2m_through_regress m2o_recursive managers_regress many_to_many
  many_to_one many_to_one_null max_lengths migrate_signals migration_test_data_persistence migrations migrations2
  model_enums model_fields model_forms model_formsets model_formsets_regress model_indexes model_inheritance
  model_inheritance_regress model_meta model_options model_package model_regress model_utils multiple_database
  mutually_referential nested_foreign_keys null_fk null_fk_ordering null_queries one_to_one or_lookups
  order_with_respect_to ordering pagination prefetch_related properties proxy_model_inheritance proxy_models queries
  queryset_pickle raw_query reserved_names reverse_lookup save_delete_hooks schema select_for_update select_related
  select_related_onetoone select_related_regress serializers sessions_tests signals string_lookup swappable_models
  test_utils timezones transaction_hooks transactions unmanaged_models update update_only_fields validation xor_lookups)
# SQLAlchemy's, without profiling, typing and the parts that never connect.
sqlalchemy_tests=(test/dialect/mysql test/dialect/test_suite.py test/engine test/orm test/sql test/ext --ignore=test/ext/mypy)
# Not run with Strata: its set-up asks for a FULLTEXT index, which is refused, and leaves a table behind that fifty tests of
# other classes then find.
sqlalchemy_refused=(--deselect test/dialect/mysql/test_query.py::MatchTest)

#---------------------------------------------------------------- set-up

set_up() {
  command -v python3 >/dev/null || die "python3 is missing"
  command -v mariadb_config >/dev/null || die "libmariadb-dev is missing; scripts/setup.sh installs it"
  mkdir -p "$dir/sdist" "$dir/src"
  python3 -m venv "$dir/venv" || die "Python's venv is missing (Debian: python3-venv)"
  say "installing what the tests need into $dir/venv"
  "$python" -m pip install --quiet setuptools wheel "cython>=3" asgiref sqlparse tblib PyYAML jinja2 Pillow docutils tzdata \
    pytest pytest-xdist typing-extensions greenlet
  MYSQLCLIENT_CFLAGS=$(mariadb_config --cflags) MYSQLCLIENT_LDFLAGS=$(mariadb_config --libs) \
    "$python" -m pip install --quiet mysqlclient
  sources django "$django_version"
  sources sqlalchemy "$sqlalchemy_version"
}

# The source package, which unlike the wheel has the tests.
sources() {
  local name=$1 version=$2
  [ ! -f "$dir/src/$name-$version/.complete" ] || return 0
  say "downloading $name $version"
  [ -f "$dir/sdist/$name-$version.tar.gz" ] ||
    "$python" -m pip download --quiet --no-deps --no-binary :all: --no-build-isolation --dest "$dir/sdist" "$name==$version"
  rm -rf "$dir/src/$name-$version"
  tar -xzf "$dir/sdist/$name-$version.tar.gz" -C "$dir/src"
  : >"$dir/src/$name-$version/.complete"
}

need_set_up() {
  local source
  for source in "django-$django_version" "sqlalchemy-$sqlalchemy_version"; do
    [ -f "$dir/src/$source/.complete" ] || die "run 'scripts/frameworks.sh --set-up' first"
  done
}

#---------------------------------------------------------------- a run

# Starts a fresh server with $1 as the default engine; sets STRATA_SOCKET.
start_server() {
  local engine=$1 options=()
  export STRATA_RUN_DIR=$dir/run-${engine,,}
  options=(--default-storage-engine="$engine" --innodb-flush-log-at-trx-commit=0 --innodb-buffer-pool-size=256M)
  if [ "$engine" = InnoDB ]; then
    export STRATA_PLUGIN=none
  else
    unset STRATA_PLUGIN
    # What a crash would lose is not asked for: nobody kills this server.
    options+=(--strata-flush-log-at-trx-commit=0)
  fi
  "$top/scripts/server.sh" remove >/dev/null
  "$top/scripts/server.sh" start "${options[@]}" >/dev/null
  eval "$("$top/scripts/server.sh" env)"
  # With its messages of files that are no time zones.
  mariadb-tzinfo-to-sql /usr/share/zoneinfo 2>/dev/null | "$top/scripts/server.sh" client mysql
  "$top/scripts/server.sh" client -e 'CREATE DATABASE test_schema CHARACTER SET utf8mb4'
}

# Runs framework $1 with engine $2, tests $3...; leaves results of all its tests.
run() {
  local framework=$1 engine=$2 base=$results/$1-$2 began=$SECONDS
  shift 2
  need_set_up
  [ "$engine" = InnoDB ] || [ -f "$plugin_so" ] || die "there is no $plugin_so; run 'make plugin' first"
  mkdir -p "$results"
  rm -f "$base.tsv"
  start_server "$engine"
  "run_$framework" "$engine" "$base" "$@" || true
  "$top/scripts/server.sh" status >/dev/null || {
    tail -n 40 "$STRATA_RUN_DIR/mariadbd.log" >&2
    die "the server has ended under $framework's tests"
  }
  "$top/scripts/server.sh" remove >/dev/null
  [ -s "$base.tsv" ] || {
    tail -n 40 "$base.out" >&2
    die "$framework ran no test; its output is in $base.out"
  }
  say "$framework, $engine: $(count pass "$base.tsv") passed, $(count fail "$base.tsv") failed," \
    "$(count skip "$base.tsv") skipped, $((SECONDS - began)) s ($base.out)"
}

count() { awk -F'\t' -v s="$1" '$1 == s { n++ } END { print n + 0 }' "$2"; }

run_django() {
  local engine=$1 base=$2 src=$dir/src/django-$django_version
  shift 2
  [ $# -gt 0 ] || set -- "${django_apps[@]}"
  if [ -n "$renamed" ] && [ "$engine" != InnoDB ]; then
    rm -rf "$dir/src/django-$engine"
    cp -r "$src" "$dir/src/django-$engine"
    src=$dir/src/django-$engine
    find "$src/django/db/backends/mysql" "$src/tests/backends" "$src/tests/indexes" -name '*.py' \
      -exec "$top/scripts/rename-engine.pl" InnoDB "$engine" {} +
  fi
  (cd "$src/tests" && PYTHONPATH=$src:$top/scripts/frameworks FRAMEWORKS_SOCKET=$STRATA_SOCKET FRAMEWORKS_RESULTS=$base.tsv \
    "$python" -W ignore runtests.py --settings=django_settings --noinput --parallel="$jobs" "$@") >"$base.out" 2>&1 </dev/null
}

run_sqlalchemy() {
  local engine=$1 base=$2 src=$dir/src/sqlalchemy-$sqlalchemy_version copy=$dir/src/sqlalchemy-$1 parallel=() refused=()
  shift 2
  [ $# -gt 0 ] || set -- "${sqlalchemy_tests[@]}"
  rm -rf "$copy"
  cp -r "$src" "$copy"
  if [ "$engine" != InnoDB ]; then
    find "$copy/test" -name '*.py' -exec "$top/scripts/rename-engine.pl" InnoDB "$engine" {} +
    refused=("${sqlalchemy_refused[@]}")
  fi
  [ "$jobs" = 1 ] || parallel=(-n "$jobs")
  (cd "$copy" && PYTHONPATH=$top/scripts/frameworks FRAMEWORKS_RESULTS=$base.tsv \
    "$python" -m pytest -p record_pytest --maxfail=0 -q -r f -p no:cacheprovider "${parallel[@]}" "${refused[@]}" \
    --dburi "mariadb+mysqldb://root@/test?unix_socket=$STRATA_SOCKET&charset=utf8mb4" "$@") >"$base.out" 2>&1 </dev/null
}

#---------------------------------------------------------------- main

engine=
rerun=
renamed=
jobs=2
frameworks=()
while [ $# -gt 0 ]; do
  case $1 in
    --set-up) set_up; exit ;;
    --engine=[Ii]nno[Dd][Bb]) engine=InnoDB ;;
    --engine=[Ss][Tt][Rr][Aa][Tt][Aa]) engine=STRATA ;;
    --rerun-innodb) rerun=1 ;;
    --renamed) renamed=1 ;;
    --jobs=*) jobs=${1#--jobs=} ;;
    django | sqlalchemy) frameworks+=("$1") ; shift; break ;;
    *)
      sed -n '2,/^set -euo/{/^set -euo/d;s/^# \{0,1\}//;p}' "$0"
      exit 2
      ;;
  esac
  shift
done
[ ${#frameworks[@]} -gt 0 ] || frameworks=(django sqlalchemy)
# Results of chosen tests do not take the place of those of all.
[ $# -eq 0 ] || results=$results/some rerun=1

lost=0
for framework in "${frameworks[@]}"; do
  if [ -n "$engine" ]; then
    run "$framework" "$engine" "$@"
    continue
  fi
  if [ -n "$rerun" ] || [ ! -f "$results/$framework-InnoDB.tsv" ]; then run "$framework" InnoDB "$@"; fi
  run "$framework" STRATA "$@"
  "$python" "$top/scripts/frameworks/compare.py" "$framework" "$results/$framework"-{InnoDB,STRATA}.tsv || lost=1
done
exit $lost
