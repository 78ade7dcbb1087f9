#!/usr/bin/env bash
# Makes a stored database: what a plugin leaves of std_data/stored.sql when the server is killed, packed for the SQL test
# 'stored'. To be run once for each format of the store or the catalog, with the last plugin that wrote it.
#
#   stored.sh PLUGIN NAME     writes mysql-test/suite/strata/std_data/NAME.tar.gz
set -euo pipefail
me=stored
# shellcheck source=scripts/lib.sh
. "$(dirname "$0")/lib.sh"
load_env
cd "$top"
[ $# -eq 2 ] || die "usage: stored.sh PLUGIN NAME"
data=$top/mysql-test/suite/strata/std_data

export STRATA_RUN_DIR=$top/target/stored
scripts/server.sh remove >/dev/null
mkdir -p "$STRATA_RUN_DIR.plugin"
# A server takes the plugin by its name.
cp "$1" "$STRATA_RUN_DIR.plugin/ha_strata.so"
export STRATA_PLUGIN=$STRATA_RUN_DIR.plugin/ha_strata.so
# As the server of the test: one byte order, one time zone, no binary log.
TZ=UTC scripts/server.sh start --default-time-zone=+00:00
scripts/server.sh client --table <"$data/stored.sql" >/dev/null
scripts/server.sh kill
tar --create --gzip --sparse --sort=name --owner=0 --group=0 --numeric-owner --mtime=@0 \
  --directory="$STRATA_RUN_DIR/data" --file="$data/$2.tar.gz" '#strata' stored
scripts/server.sh remove >/dev/null
rm -rf "$STRATA_RUN_DIR.plugin"
ls -l "$data/$2.tar.gz"
