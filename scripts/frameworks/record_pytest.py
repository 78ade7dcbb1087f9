"""A plug-in for pytest that writes what became of each test to $FRAMEWORKS_RESULTS. With xdist the controller writes."""

import os

from outcomes import Outcomes

_outcomes = Outcomes(os.environ["FRAMEWORKS_RESULTS"])


def pytest_runtest_logreport(report):
    if report.failed:
        text = report.longreprtext.strip().splitlines()
        _outcomes.add(report.nodeid, "fail", text[-1] if text else "")
    elif report.skipped:
        expected = hasattr(report, "wasxfail")
        _outcomes.add(report.nodeid, "pass" if expected else "skip", report.longrepr[2] if isinstance(report.longrepr, tuple) else "")
    elif report.when == "call":
        _outcomes.add(report.nodeid, "pass")


def pytest_collectreport(report):
    if report.failed:
        _outcomes.add(report.nodeid, "fail", str(report.longrepr).strip().splitlines()[-1])


def pytest_sessionfinish(session):
    if not hasattr(session.config, "workerinput"):
        _outcomes.write()
