# Sourced by the other scripts: paths of the checkout, messages, the server's
# variables. No purpose of its own.
# shellcheck shell=bash

top=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
# Used by the scripts that source this file.
# shellcheck disable=SC2034
plugin_so=$top/target/plugin/ha_strata.so

say() { printf '%s: %s\n' "${me:-strata}" "$*"; }
die() {
  printf '%s\n' "$@" | sed "s/^/${me:-strata}: /" >&2
  exit 1
}

# The variables that setup.sh wrote: MARIADB_VERSION and so on.
load_env() {
  [ -f "$top/target/server/env.sh" ] || "$top/scripts/setup.sh"
  # shellcheck source=/dev/null
  . "$top/target/server/env.sh"
}

# Copies the plugin into folder $1 under a new inode: a server that has the
# old file open keeps it.
copy_plugin() {
  local to
  to=$1/$(basename "$plugin_so")
  if [ ! -f "$plugin_so" ]; then
    rm -f "$to"
  elif ! cmp -s "$plugin_so" "$to"; then
    cp "$plugin_so" "$to.new"
    mv -f "$to.new" "$to"
  fi
}
