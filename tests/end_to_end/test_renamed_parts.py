"""A private part of Lightning or torch that is renamed tomorrow costs one part of the measurement, not the run."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any, TypeAlias

import pytest

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1800)]

Trained: TypeAlias = dict[str, Any]

PROGRAM = Path(__file__).parent / "renamed_parts.py"
STEPS = 12

LATE = "still being analysed"
"""Said on a machine that is busy with other things."""

STEPS_ARE_LOST = {
    "fit_loop.epoch_loop.advance",
    "fit_loop.epoch_loop.val_loop.run",
    *(f"{stage}_loop.{name}" for stage in ("validate", "predict") for name in ("on_run_start", "on_run_end")),
    "validate_loop._evaluation_step",
    "predict_loop._predict_step",
}
"""Where steps begin and end: without one of these no step is measured, and the rest is."""


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> list[Trained]:
    folder = tmp_path_factory.mktemp("renamed")
    done = subprocess.run([sys.executable, str(PROGRAM), str(folder)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    return [json.loads(line) for line in done.stdout.splitlines()]


def said(one: Trained) -> list[str]:
    return [line for line in one["told"] if LATE not in line]


def as_ever(one: Trained, trained: list[Trained]) -> Trained:
    """The same training with nothing renamed."""
    return next(t for t in trained if not t["name"] and (t["stage"], t["uses"]) == (one["stage"], one["uses"]))


def test_every_private_name_is_tried(trained: list[Trained]) -> None:
    tried = {one["name"] for one in trained}
    assert {"_profiler_enabled", "_worker_loop", "_batches_that_stepped", "_ddp_kwargs"} <= tried
    assert {"fit_loop.epoch_loop.advance", "predict_loop._predict_step"} <= tried
    assert tried >= STEPS_ARE_LOST


def test_training_comes_to_its_end(trained: list[Trained]) -> None:
    assert {one["name"]: one["error"] for one in trained if "error" in one} == {}


def test_what_is_measured_adds_up(trained: list[Trained]) -> None:
    apart = {one["name"]: (one["apart_ns"], one["wall_apart_s"]) for one in trained}
    assert {name: found for name, found in apart.items() if found[0] or found[1] > 1e-9} == {}


def test_steps_are_measured_without_all_that_is_not_their_edge(trained: list[Trained]) -> None:
    lost = {one["name"] for one in trained if one["steps"] != STEPS}
    assert lost == STEPS_ARE_LOST


def test_the_loss_of_steps_is_said_and_the_rest_is_there(trained: list[Trained]) -> None:
    for one in trained:
        if one["name"] in STEPS_ARE_LOST:
            (line,) = said(one)
            assert line.startswith("steps: ")
            if one["stage"] == "fit":  # the others are known by the same edges
                assert one["conditions"] == as_ever(one, trained)["conditions"]


def test_whatever_is_lost_is_one_line(trained: list[Trained]) -> None:
    assert {one["name"]: said(one) for one in trained if len(said(one)) > 1} == {}
    assert {one["name"]: one["warned"] for one in trained if len(one["warned"]) > 1} == {}


def test_what_is_lost_without_a_word_is_a_fact_of_the_conditions_or_nothing(trained: list[Trained]) -> None:
    for one in trained:
        if not said(one):
            before = as_ever(one, trained)
            assert set(one["phases"]) == set(before["phases"]), one["name"]
            assert one["input"] == before["input"], one["name"]
            assert one["windows"] == before["windows"] or len(one["told"]) > 0, one["name"]
