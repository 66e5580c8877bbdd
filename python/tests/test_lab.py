"""Experiments: those that are built in, and one that Python declares."""

import numpy as np
import pytest

import braid
import braid.lab


def mine():
    series = {"devices": ["hdd 4GiB,model=mba3073"], "load": "zipf,span=256MiB,clients={x},requests=endless"}
    return {
        "id": "mine/clients",
        "title": "Throughput by clients",
        "paper": {"title": "Nobody, \"Nothing\"", "year": 2026, "system": "mine"},
        "axis": {"numbers": {"label": "clients", "places": [1, 4]}},
        "series": [
            {**series, "label": "disk", "policy": "hdd-only"},
            {**series, "label": "both", "policy": "stripe", "devices": ["ssd 1GiB,model=x25-m", *series["devices"]]},
        ],
        "measures": ["throughput"],
        "times": {"warm_up": 1, "measured": 4},
        "claims": [
            {
                "sentence": "Both are faster.",
                "origin": "aim",
                "tests": [
                    {
                        "quantity": {"number": "ratio", "measure": "throughput", "of": "both", "to": ["disk"], "at": 4},
                        "bound": {"more-than": 1.0},
                    }
                ],
            }
        ],
    }


def test_a_declaration_of_ones_own_is_run_and_judged():
    study = braid.lab.run(mine(), seeds=2)[0]
    values = study.values("throughput")
    assert study.labels == ["disk", "both"] and list(study.places) == [1, 4]
    assert values.shape == study.half_widths("throughput").shape == (2, 2) and (values > 0).all()
    assert (values[1] > values[0]).all()
    assert study.rulings() == {"Both are faster.": "holds"}
    with pytest.raises(KeyError, match="throughput"):
        study.values("latency")


def test_what_is_built_in_can_be_changed_and_run(tmp_path):
    declared = braid.lab.experiments()["wardrop/fig9"]
    declared["id"], declared["paper"]["system"] = "mine/fig9", "mine"
    changed, built_in = braid.lab.run(declared, quick=True)[0], braid.lab.run("wardrop/fig9", quick=True)[0]
    for table in built_in["tables"]:
        np.testing.assert_array_equal(changed.values(table["measure"]), built_in.values(table["measure"]))
    kept = braid.lab.run(declared, quick=True, results=tmp_path)
    assert (tmp_path / "mine-fig9-quick-seed1.json").is_file()
    assert braid.lab.run(declared, quick=True, results=tmp_path) == kept


def test_what_cannot_be_is_named():
    with pytest.raises(braid.SetupError, match="wardrop/fig99"):
        braid.lab.run("wardrop/fig99")
    wrong = mine()
    wrong["claims"][0]["tests"][0]["quantity"]["at"] = 5
    with pytest.raises(braid.SetupError, match=r"place 5.*\[1, 4\]"):
        braid.lab.run(wrong)
    wrong = mine()
    wrong["titel"] = wrong.pop("title")
    with pytest.raises(braid.SetupError, match="titel"):
        braid.lab.run(wrong)


def test_an_exception_of_progress_ends_the_run():
    def stop(finished, total, left):
        raise RuntimeError("enough")

    with pytest.raises(RuntimeError, match="enough"):
        braid.lab.run("wardrop/fig1", seeds=2, progress=stop)
