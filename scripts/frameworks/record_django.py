"""Django's test runner, which also writes what became of each test to $FRAMEWORKS_RESULTS."""

import os
import traceback
import unittest

from django.test.runner import DiscoverRunner

from outcomes import Outcomes


def last_line(error):
    return traceback.format_exception_only(error[0], error[1])[-1]


class Result(unittest.TextTestResult):
    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.outcomes = Outcomes(os.environ["FRAMEWORKS_RESULTS"])

    def addSuccess(self, test):
        super().addSuccess(test)
        self.outcomes.add(test.id(), "pass")

    def addError(self, test, err):
        super().addError(test, err)
        self.outcomes.add(test.id(), "fail", last_line(err))

    def addFailure(self, test, err):
        super().addFailure(test, err)
        self.outcomes.add(test.id(), "fail", last_line(err))

    def addSubTest(self, test, subtest, err):
        super().addSubTest(test, subtest, err)
        if err is not None:
            self.outcomes.add(test.id(), "fail", last_line(err))

    def addSkip(self, test, reason):
        super().addSkip(test, reason)
        self.outcomes.add(test.id(), "skip", reason)

    def addExpectedFailure(self, test, err):
        super().addExpectedFailure(test, err)
        self.outcomes.add(test.id(), "pass")

    def addUnexpectedSuccess(self, test):
        super().addUnexpectedSuccess(test)
        self.outcomes.add(test.id(), "fail", "passes, which is not expected")

    def stopTestRun(self):
        super().stopTestRun()
        self.outcomes.write()


class Runner(DiscoverRunner):
    def get_resultclass(self):
        return Result
