#!/usr/bin/env bash
# Records mariadb/plugin.profdata: how often which way was taken in the plugin
# while the lab drove it. The compiler then lays out what is used together side
# by side; a statement finds the processor's caches cold, and that is what it
# waits for. To be run when the reading or writing of rows has changed much:
# functions that the file does not know are compiled as if there were none.
set -euo pipefail
me=profile
# shellcheck source=scripts/lib.sh
. "$(dirname "$0")/lib.sh"
load_env
cd "$top"

rustup component add llvm-tools >/dev/null
profdata=$(rustc --print sysroot)/lib/rustlib/$(rustc -vV | sed -n 's/^host: //p')/bin/llvm-profdata
work=$PWD/target/profile/work
rm -rf "$work"
mkdir -p "$work/raw"

say 'building the plugin that counts'
make --no-print-directory plugin-so plugin_so="$work/ha_strata.so" rust_flags="-Cprofile-generate=$work/raw" \
  link_flags=-Wl,-u,__llvm_profile_runtime

# Build scripts count as well.
rm -f "$work"/raw/*
lab() { STRATA_PLUGIN=$work/ha_strata.so cargo run --quiet --release -p strata-lab -- "$@" --engines strata --dir "$work/lab"; }
lab oltp --scripts all,select_random_points --rows 100000 --seconds 4 --warmup 1 --threads 4
lab tpcc --warehouses 1 --threads 4 --seconds 20 --cache-ratio 4
lab tpcc --warehouses 1 --threads 4 --seconds 8 --cache-ratio 4 --foreign-keys
lab tables --rows 300000 --cache-mb 256 --scans 2
# Lists and nodes that are not in memory.
lab linkbench --nodes 100000 --requesters 4 --seconds 20 --warmup 2 --no-check

"$profdata" merge --sparse -o mariadb/plugin.profdata "$work/raw"
rm -rf "$work"
say "recorded mariadb/plugin.profdata, $(stat -c %s mariadb/plugin.profdata) bytes"
