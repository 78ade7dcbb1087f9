#!/usr/bin/env bash
# Checks that a plugin will load: the server resolves all of a plugin's symbols
# at once, so a single one that neither mariadbd nor a library defines makes
# the load fail. Checks as well that the plugin exports what the server looks
# up by name, and nothing else.
#
#   check-symbols.sh [PLUGIN.so]
set -euo pipefail
me=check-symbols
# shellcheck source=scripts/lib.sh
. "$(dirname "$0")/lib.sh"
load_env

so=${1:-$plugin_so}
[ -f "$so" ] || die "there is no $so"
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT

# Names without their version: what a library has at all is what is asked.
names() { sed -E 's/@.*//' | sort -u; }

nm -D --undefined-only "$so" | awk '$1 == "U" { print $2 }' | names >"$tmp/needed"
{
  nm -D --defined-only "$MARIADBD"
  ldd "$so" | awk '$2 == "=>" && $3 ~ /^\// { print $3 } $1 ~ /^\/.*ld-linux/ { print $1 }' |
    while read -r lib; do nm -D --defined-only "$lib"; done
} | awk '{ print $NF }' | names >"$tmp/provided"

missing=$(comm -23 "$tmp/needed" "$tmp/provided")
if [ -n "$missing" ]; then
  c++filt <<<"$missing" | sed "s/^/$me: nobody defines /" >&2
  die "$so would not load"
fi

if ldd "$so" | grep 'not found' >&2; then
  die "$so needs a library that is not there"
fi

nm -D --defined-only "$so" | awk '{ print $NF }' | names >"$tmp/exported"
for s in _maria_plugin_interface_version_ _maria_sizeof_struct_st_plugin_ _maria_plugin_declarations_; do
  grep -qxF "$s" "$tmp/exported" || die "$so does not export $s"
done
if [ "$(basename "$so")" = ha_strata.so ] &&
  grep -vE '^(_maria_plugin_.*|_maria_sizeof_.*|.*_service|print_check_msg_context)$' "$tmp/exported" >"$tmp/extra"; then
  head -n 20 "$tmp/extra" >&2
  die "$so exports such names ($(wc -l <"$tmp/extra") of them), and should not"
fi

say "$(basename "$so"): $(wc -l <"$tmp/needed") symbols needed, all there;" \
  "$(wc -l <"$tmp/exported") exported"
