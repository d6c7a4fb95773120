import itertools
import json
from pathlib import Path

import long_run
import pytest

from lightning_gpuprof.capture.step_clock import ClosedStep


def test_each_slot_has_times_of_its_own_that_vary_as_drawn() -> None:
    run = long_run.FastMotion(slots=6, seed=3)
    list(run.train(2_000, wait=lambda: None))
    steps = [item for item in run.clock.closed if isinstance(item, ClosedStep)]
    assert [step.batch for step in steps] == list(range(2_000))
    assert all(sum(step.charged) == step.end_ns - step.start_ns for step in steps)
    charged = [sorted(column) for column in zip(*(step.charged for step in steps), strict=True) if any(column)]
    assert len(charged) == 6
    for column in charged:
        assert 1.1 < column[1_800] / column[1_000] < 1.6
        assert len(set(column)) > 100
    sampled = [step for step in steps if step.cpu_charged is not None]
    assert len(sampled) > 10
    assert all(sum(time > 0 for time in step.cpu_charged or []) == 6 for step in sampled)


def test_every_epoch_begins_at_the_same_look_of_the_clock() -> None:
    run = long_run.FastMotion(slots=4, seed=0)
    list(run.train(3_000, wait=lambda: None, steps_per_epoch=1_000))
    steps = [item for item in run.clock.closed if isinstance(item, ClosedStep)]
    for slot in range(len(steps[0].charged)):
        totals = [sum(step.charged[slot] for step in steps[n : n + 1_000]) for n in (0, 1_000, 2_000)]
        assert max(totals) <= 1.1 * min(totals)


def test_the_clock_only_goes_forward() -> None:
    clock = long_run.drawn_clock(slots=3, seed=0)
    looks = [clock() for _ in range(60_000)]
    assert all(before < after for before, after in itertools.pairwise(looks))


def test_a_run_with_many_slots_is_written_small_and_read_whole(tmp_path: Path) -> None:
    path = tmp_path / "rank0.jsonl"
    settings = long_run.Settings(steps=50_000, slots=35, report_steps=0, seed=0)
    written = long_run.write(path, settings)
    reading = long_run.read(path, "read")
    assert (reading.steps, reading.whole, written.dropped_steps) == (50_000, True, 0)
    assert written.bytes_per_step < 110


@pytest.mark.slow
def test_a_run_in_fast_motion_is_written_small_read_whole_and_needs_no_more_memory(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    target = tmp_path / "new" / "long_run.json"
    assert long_run.main(["--steps", "200000", "--json", str(target)]) == 0
    document = json.loads(target.read_text())
    written, reading = document["written"], document["reading"]
    assert (reading["steps"], reading["whole"], written["dropped_steps"]) == (200_000, True, 0)
    assert (document["report"]["steps"], document["report"]["whole"]) == (200_000, True)
    assert written["bytes_per_step"] < 60
    assert [epoch["steps"] for epoch in written["memory"]] == [100_000, 200_000]
    assert written["growth_mb"] < 20
    assert str(Path.home()) not in target.read_text()
    assert "200,000 steps with 10 slots" in capsys.readouterr().out
