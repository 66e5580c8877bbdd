"""The package itself: its version, its types, its example."""

import importlib.metadata
import pkgutil
import runpy
import sys
from pathlib import Path

import pytest

import braid

EXAMPLES = Path(__file__).resolve().parent.parent / "examples"


def test_the_version_is_that_of_the_package():
    assert braid.__version__ == importlib.metadata.version("braid")


def test_types_are_installed():
    installed = Path(braid.__file__).parent
    assert (installed / "py.typed").exists() and (installed / "_native.pyi").exists()


def test_everything_public_says_what_it_is():
    for name in braid.__all__:
        assert name == "__version__" or getattr(braid, name).__doc__, name
    for module in pkgutil.iter_modules(braid.__path__):
        assert __import__(f"braid.{module.name}", fromlist=["x"]).__doc__ is not None, module.name


def test_the_example_draws_its_figure(tmp_path, monkeypatch, capsys):
    matplotlib = pytest.importorskip("matplotlib", reason="needs matplotlib")
    matplotlib.use("Agg")
    figure = tmp_path / "figure.png"
    monkeypatch.setattr(sys, "argv", ["example", str(figure), "warm_up=1s", "duration=1s"])
    runpy.run_path(str(EXAMPLES / "policies_by_clients.py"))
    assert figure.stat().st_size > 10_000
    assert "of requests on the SSD" in capsys.readouterr().out
