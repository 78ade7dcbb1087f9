#!/usr/bin/env bash
# Shows the running private server at work: the lab's tour.
set -euo pipefail
me=tour
# shellcheck source=scripts/lib.sh
. "$(dirname "$0")/lib.sh"

export STRATA_SERVER_SH=$top/scripts/server.sh
set -a
eval "$("$top/scripts/server.sh" env)"
set +a
cd "$top"
exec cargo run --quiet --release -p strata-lab -- tour
