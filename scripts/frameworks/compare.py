"""compare.py FRAMEWORK INNODB.tsv STRATA.tsv: tells the tests that pass with InnoDB and not with Strata, by their reasons.

A test that is skipped or was not run with Strata is told, too. Fails if there is any.
"""

import sys
from collections import defaultdict

from outcomes import read


def main():
    framework, innodb, strata = sys.argv[1], read(sys.argv[2]), read(sys.argv[3])
    passes = {test for test, (outcome, _) in innodb.items() if outcome == "pass"}
    lost = defaultdict(list)
    for test in sorted(passes):
        outcome, reason = strata.get(test, ("not run", ""))
        if outcome != "pass":
            lost[f"{outcome}: {reason}"].append(test)
    number = sum(map(len, lost.values()))
    more = sum(1 for test, (outcome, _) in strata.items() if outcome == "pass" and innodb.get(test, ("fail",))[0] == "fail")
    print(f"{framework}: InnoDB passes {len(passes)}, Strata of these {len(passes) - number}, and {more} that InnoDB fails")
    for reason, tests in sorted(lost.items(), key=lambda item: -len(item[1])):
        print(f"\n{reason}")
        for test in tests:
            print(f"  {test}")
    return 1 if number else 0


if __name__ == "__main__":
    sys.exit(main())
