"""Counts tests as cargo does, so that ``scripts/test`` can add them up."""

import pytest


@pytest.hookimpl(trylast=True)
def pytest_terminal_summary(terminalreporter):
    def count(kind):
        return len(terminalreporter.stats.get(kind, []))

    for report in terminalreporter.stats.get("skipped", []):
        terminalreporter.write_line(f"SKIPPED: python, {report.nodeid}: {report.longrepr[2]}")
    passed, failed = count("passed"), count("failed") + count("error")
    terminalreporter.write_line(f"test result: {'FAILED' if failed else 'ok'}. {passed} passed; {failed} failed")
