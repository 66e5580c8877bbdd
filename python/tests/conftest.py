"""Ctrl-C as in a terminal; counts tests as cargo does, so that ``scripts/test`` can add them up."""

import signal

import pytest


@pytest.fixture(autouse=True)
def ctrl_c_interrupts():
    """Whoever starts the tests in the background of a shell has them begin with Ctrl-C ignored."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.hookimpl(trylast=True)
def pytest_terminal_summary(terminalreporter):
    def count(kind):
        return len(terminalreporter.stats.get(kind, []))

    for report in terminalreporter.stats.get("skipped", []):
        terminalreporter.write_line(f"SKIPPED: python, {report.nodeid}: {report.longrepr[2]}")
    passed, failed = count("passed"), count("failed") + count("error")
    terminalreporter.write_line(f"test result: {'FAILED' if failed else 'ok'}. {passed} passed; {failed} failed")
