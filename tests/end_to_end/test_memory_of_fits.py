"""Memory of real fits on a CPU; an allocator that behaves as torch's stands in the place of a GPU's."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from fake_allocator import FakeAllocator
from memory_fits import (
    ACTIVATIONS,
    GRADIENTS,
    PEAK,
    RESTING,
    STATE,
    WEIGHTS,
    Hungry,
    fit,
    fit_until_out_of_memory,
    profiler_of,
    trainer_of,
)
from planted_runs import Sleepy
from torch.utils.data import DataLoader

from lightning_gpuprof import TraceConfig


@pytest.mark.parametrize("manual", [False, True])
def test_each_phase_s_end_is_read_and_the_peak_s_phase_is_known(tmp_path: Path, manual: bool) -> None:
    allocator = FakeAllocator(held=WEIGHTS)
    report = fit(tmp_path, Hungry(allocator, nap_s=0.03, manual=manual), steps=90)
    (device,) = report.memory.devices
    by_phase = {row.phase: row.allocated_bytes for row in device.phases}
    assert by_phase["step"] == by_phase["backward"] == by_phase["optimizer"] == RESTING
    if not manual:  # with manual optimization all of it lies inside of training_step
        assert by_phase["forward"] == RESTING + ACTIVATIONS
        assert by_phase["zero_grad"] == RESTING + ACTIVATIONS - GRADIENTS
    assert (device.peak_phase, device.allocated_peak_bytes) == ("backward", PEAK)
    assert device.headroom_bytes == (1 << 30) - allocator.statistics()["reserved_peak"]
    assert not any("memory" in caveat for caveat in report.validity.caveats)


def test_the_users_own_peak_is_as_it_was_and_only_sampled_steps_are_read(tmp_path: Path) -> None:
    allocator = FakeAllocator(held=WEIGHTS)
    report = fit(tmp_path, Hungry(allocator, nap_s=0.002), steps=150)
    assert report.memory.devices[0].samples == allocator.calls["read"]
    # Three first steps at each of six ends; after that one reading each fifth of a second at the most.
    assert allocator.calls["read"] <= 18 + report.wall.total_s / 0.2 + 1
    assert set(allocator.calls) <= {"read"}
    plain = FakeAllocator(held=WEIGHTS)
    trainer_of(None).fit(Hungry(plain, nap_s=0.0), DataLoader(Sleepy(150), batch_size=1))
    assert allocator.statistics() == plain.statistics()


def test_out_of_memory_comes_through_unchanged_and_is_explained(tmp_path: Path, capsys: Any) -> None:
    report, functions = fit_until_out_of_memory(tmp_path, Hungry(FakeAllocator(held=WEIGHTS), oom_at=20))
    assert functions[-2:] == ["training_step", "alloc"]
    end = report.memory.out_of_memory
    assert (end.phase, end.batch, end.global_step) == ("forward", 20, 20)
    assert "fake_allocator.py" in end.place  # torch's allocator is no Python
    assert end.requested_bytes == 1 << 40
    assert end.total_bytes == 1 << 30
    assert end.allocated_bytes == WEIGHTS + STATE + GRADIENTS + ACTIVATIONS
    assert end.held[0].parameters_bytes == 9 * 4
    assert "was not recorded" in end.history_absent
    assert (end.pieces[0].size_bytes, end.pieces[0].count) == (ACTIVATIONS, 1)
    assert sum(one.size_bytes * one.count for one in end.pieces) == end.allocated_bytes
    assert (tmp_path / "gpuprof" / end.snapshot_file).is_file()
    written = json.loads((tmp_path / "gpuprof" / "report.json").read_text())
    assert written["memory"]["out_of_memory"]["phase"] == "forward"
    shown = capsys.readouterr().out
    assert "out of memory:" in shown
    assert "batch 20" in shown


def test_with_the_users_history_an_out_of_memory_is_told_by_line_and_the_history_left_alone(tmp_path: Path) -> None:
    allocator = FakeAllocator(held=WEIGHTS)
    allocator.record_for_the_user()
    end = fit_until_out_of_memory(tmp_path, Hungry(allocator, oom_at=20))[0].memory.out_of_memory
    places = {row.place.rpartition(" ")[2]: row.held_bytes for row in end.history.at_failure}
    assert places["training_step"] == ACTIVATIONS
    assert places["on_before_optimizer_step"] == STATE
    assert places["began"] == WEIGHTS
    assert sum(places.values()) == end.allocated_bytes
    assert allocator.calls["stop_history"] == 0
    assert (tmp_path / "gpuprof" / end.history.file).is_file()


def test_a_window_s_history_is_replayed_and_written(tmp_path: Path) -> None:
    allocator = FakeAllocator(held=WEIGHTS)
    report = fit(
        tmp_path,
        Hungry(allocator, nap_s=0.01),
        steps=40,
        windows=[(10, 12)],
        trace=TraceConfig(memory_snapshot=True, active=3, warmup=1),
    )
    (history,) = report.memory.histories
    assert history.peak_bytes == PEAK
    assert history.at_peak[0].held_bytes == ACTIVATIONS
    assert "training_step" in history.at_peak[0].place
    assert history.before_bytes == WEIGHTS + STATE
    assert history.peaks_by_phase["forward"] == RESTING + ACTIVATIONS
    assert history.peaks_by_phase["backward"] == PEAK
    assert history.peaks_by_phase["optimizer"] == RESTING
    assert (tmp_path / "gpuprof" / history.file).is_file()
    assert allocator.calls["start_history"] == allocator.calls["stop_history"] == 1


def test_a_history_of_the_users_is_left_alone_by_windows(tmp_path: Path) -> None:
    allocator = FakeAllocator(held=WEIGHTS)
    allocator.record_for_the_user()
    config = TraceConfig(memory_snapshot=True, active=3, warmup=1)
    with pytest.warns(RuntimeWarning, match="the allocator's history"):
        report = fit(tmp_path, Hungry(allocator, nap_s=0.01), steps=30, windows=[(10, 12)], trace=config)
    assert report.memory.histories == ()
    assert any("the allocator's history" in caveat for caveat in report.validity.caveats)
    assert allocator.calls["stop_history"] == 0
    assert not list((tmp_path / "gpuprof").glob("*.pickle"))


def test_an_allocator_that_breaks_ends_nothing_but_our_readings(tmp_path: Path) -> None:
    allocator = FakeAllocator(held=WEIGHTS)
    allocator.broken = "read"
    with pytest.warns(RuntimeWarning, match="allocator lost in read"):
        report = fit(tmp_path, Hungry(allocator), steps=30)
    assert report.steps.count == 30
    assert report.memory.devices == ()
    assert report.memory.held


def test_the_cpu_s_allocator_runs_out_too(tmp_path: Path) -> None:
    class Endless(Hungry):
        def training_step(self, batch: Any, batch_idx: int) -> Any:
            if batch_idx == 9:
                torch.empty(1 << 60, dtype=torch.uint8)
            return super().training_step(batch, batch_idx)

    profiler = profiler_of(tmp_path, None)
    with pytest.raises(RuntimeError, match="DefaultCPUAllocator"):
        trainer_of(profiler).fit(Endless(FakeAllocator(), nap_s=0.0), DataLoader(Sleepy(30), batch_size=1))
    end = profiler.report.memory.out_of_memory
    assert (end.requested_bytes, end.phase, end.batch, end.allocated_bytes) == (1 << 60, "forward", 9, None)
    assert end.place.endswith(" training_step")


def test_another_exception_is_no_out_of_memory(tmp_path: Path) -> None:
    class Broken(Hungry):
        def training_step(self, batch: Any, batch_idx: int) -> Any:
            raise ValueError("theirs")

    profiler = profiler_of(tmp_path, FakeAllocator(), reports=["json"])
    with pytest.raises(ValueError, match="theirs"):
        trainer_of(profiler).fit(Broken(FakeAllocator()), DataLoader(Sleepy(5), batch_size=1))
    assert profiler.report.memory.out_of_memory is None


def test_without_a_device_what_the_model_holds_is_counted(tmp_path: Path) -> None:
    profiler = profiler_of(tmp_path, None, reports=["json"])
    trainer_of(profiler).fit(Hungry(FakeAllocator(), nap_s=0.0), DataLoader(Sleepy(30), batch_size=1))
    memory = profiler.report.memory
    assert memory.devices == ()
    (held,) = memory.held
    assert (held.device, held.dtype, held.parameters_bytes, held.gradients_bytes) == ("cpu", "float32", 36, 36)
    assert held.optimizer_state_bytes == 2 * 36 + 2 * 4  # two moments, and Adam's step as a tensor per parameter
