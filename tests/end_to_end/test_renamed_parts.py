"""A private part of Lightning or torch that is renamed tomorrow costs one part of the measurement, not the run."""

import json
from pathlib import Path
from typing import Any, TypeAlias

import pytest
from python_process import run_python

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


def said(one: Trained) -> list[str]:
    return [line for line in one["told"] if LATE not in line]


def problems_of(one: Trained, as_ever: Trained) -> list[str]:
    """What does not hold of a training, beside the same one with nothing renamed."""
    lines, problems = said(one), []
    if one["apart_ns"] or one["wall_apart_s"] > 1e-9:
        problems.append("what is measured does not add up")
    if (one["steps"] != STEPS) != (one["name"] in STEPS_ARE_LOST):
        problems.append(f"{one['steps']} steps were measured")
    if len(lines) > 1 or len(one["warned"]) > 1:
        problems.append(f"more than one line: {lines} {one['warned']}")
    if one["name"] in STEPS_ARE_LOST:
        if [line.partition(":")[0] for line in lines] != ["steps"]:
            problems.append(f"the loss of steps is not said: {lines}")
        if one["stage"] == "fit" and one["conditions"] != as_ever["conditions"]:  # others are known by the same edges
            problems.append("conditions are lost with the steps")
    if not lines:  # then what is lost is a fact of the conditions, or nothing
        if set(one["phases"]) != set(as_ever["phases"]) or one["input"] != as_ever["input"]:
            problems.append("phases or input are lost without a word")
        if one["windows"] != as_ever["windows"] and not one["told"]:
            problems.append("windows are lost without a word")  # one that is there says what it lacks
    return problems


def test_a_renamed_part_costs_one_part_of_the_measurement_and_says_so(tmp_path: Path) -> None:
    """One test, as its trainings take two minutes: several of a file may run in several processes."""
    done = run_python(PROGRAM, tmp_path)
    trained = [json.loads(line) for line in done.stdout.splitlines()]
    tried = {one["name"] for one in trained}
    assert {"_profiler_enabled", "_worker_loop", "_batches_that_stepped", "_ddp_kwargs"} <= tried
    assert {"fit_loop.epoch_loop.advance", "predict_loop._predict_step"} | STEPS_ARE_LOST <= tried
    assert [(one["name"], one["error"]) for one in trained if "error" in one] == []
    as_ever = {(one["stage"], one["uses"]): one for one in trained if not one["name"]}
    found = [(one["stage"], one["name"], problems_of(one, as_ever[one["stage"], one["uses"]])) for one in trained]
    assert [one for one in found if one[2]] == []
