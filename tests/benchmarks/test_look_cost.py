"""What a look costs is found beside it."""

import json
from pathlib import Path

import look_cost
import numpy as np
import pytest


def test_what_steps_beside_a_look_take_longer_is_what_it_adds() -> None:
    steps = np.full(400, 1.0)
    steps[100:110] += 0.05
    steps[300] += 2.0
    edges = np.concatenate(([0.0], np.cumsum(steps)))
    looks = [(edges[100] + 0.1, edges[109] + 0.3), (edges[300] + 0.2, edges[300] + 1.5)]
    assert look_cost.added_s(edges, looks) == pytest.approx([0.5, 2.0])


def test_a_look_without_room_for_neighbours_is_left_out() -> None:
    edges = np.arange(100.0)
    assert len(look_cost.added_s(edges, [(2.1, 20.0), (50.1, 52.0), (53.1, 56.0)])) == 0


def test_results_are_written_and_printed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    target = tmp_path / "new" / "look_cost.json"
    assert look_cost.main(["--seconds", "5", "--json", str(target)]) == 0
    assert [one["looks"] > 0 for one in json.loads(target.read_text())["results"]] == [True, True]
    assert "a look adds" in capsys.readouterr().out
