#!/usr/bin/env bash
# Shows the running private server at work: the lab's tour where there is one,
# else a few statements.
set -euo pipefail
me=tour
# shellcheck source=scripts/lib.sh
. "$(dirname "$0")/lib.sh"

export STRATA_SERVER_SH=$top/scripts/server.sh
set -a
eval "$("$top/scripts/server.sh" env)"
set +a
if lab_has tour; then
  cd "$top"
  exec cargo run --quiet --release -p strata-lab -- tour
fi
say "the lab has no tour yet; a few statements instead"
"$top/scripts/server.sh" client --table test <<'SQL'
CREATE OR REPLACE TABLE tour (id INT PRIMARY KEY AUTO_INCREMENT, word VARCHAR(20), KEY (word)) ENGINE=STRATA;
INSERT INTO tour (word) VALUES ('bed'), ('layer'), ('seam');
BEGIN;
UPDATE tour SET word = 'fold' WHERE id = 1;
ROLLBACK;
SELECT * FROM tour ORDER BY word;
SELECT engine, support, transactions, xa, savepoints FROM information_schema.engines WHERE engine = 'STRATA';
DROP TABLE tour;
SQL
