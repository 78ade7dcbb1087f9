"""What became of each test of a run, as lines of text: outcome, test, reason, with tabs between them.

The outcome is pass, skip or fail (an error, and an expected failure that passed, are failures). Of a test that is told more than
once, as one with subtests or one whose clean-up fails, the worst counts. The file is written when the run ends.
"""

RANK = {"pass": 0, "skip": 1, "fail": 2}


class Outcomes:
    def __init__(self, path):
        self.path = path
        self.seen = {}

    def add(self, test, outcome, reason=""):
        if test not in self.seen or RANK[outcome] > RANK[self.seen[test][0]]:
            self.seen[test] = (outcome, " ".join(str(reason).split())[:400])

    def write(self):
        with open(self.path, "w", encoding="utf-8") as file:
            for test, (outcome, reason) in sorted(self.seen.items()):
                file.write(f"{outcome}\t{test}\t{reason}\n")


def read(path):
    """The tests of a file, each with its outcome and reason."""
    tests = {}
    with open(path, encoding="utf-8") as file:
        for line in file:
            outcome, test, reason = line.rstrip("\n").split("\t")
            tests[test] = (outcome, reason)
    return tests
