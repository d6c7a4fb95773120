"""From memory samples to the report: peaks, phases, activations, counters in steady steps, growth."""

from typing import Any

import numpy as np
import pytest
from built_journals import journal

from lightning_gpuprof.analyze.memory import memory
from lightning_gpuprof.analyze.trend import trend
from lightning_gpuprof.model.journal import Sample
from lightning_gpuprof.model.memory import Memory

GIB = 1 << 30
AT_END = {"step": 4.0, "h2d": 4.0, "forward": 9.0, "zero_grad": 8.0, "backward": 4.0, "optimizer": 4.0}
"""GiB at the end of each phase: 1 of parameters, 2 of states, 1 of gradients; forward adds 5."""


def sample(t_ns: int, batch: int, phase: str, **values: float) -> Sample:
    own = {
        "batch_index": float(batch),
        "allocated_bytes": AT_END[phase] * GIB,
        "allocated_peak_bytes": 10.0 * GIB,
        "reserved_bytes": 12.0 * GIB,
        "reserved_peak_bytes": 12.0 * GIB,
        "inactive_split_bytes": 3.0 * GIB if phase == "forward" else 1.0 * GIB,
        "retries_count": 0.0,
        "device_allocs_count": 40.0,
        "gradients_live_count": 1.0,
    }
    return Sample(source="memory", subject=f"gpu0 {phase}", t_ns=t_ns, values={**own, **values})


def rotation(steps: range) -> list[Sample]:
    phases = list(AT_END)
    return [sample(batch, batch, phases[number % 6]) for number, batch in enumerate(steps)]


HELD = Sample(
    source="memory",
    subject="held cuda:0 float32",
    t_ns=0,
    values={
        "parameters_bytes": 1.0 * GIB,
        "gradients_bytes": 1.0 * GIB,
        "buffers_bytes": 0.0,
        "optimizer_state_bytes": 2.0 * GIB,
    },
)


def of(samples: list[Sample], total: int | None = 16 * GIB) -> Memory:
    built: Any = journal()
    built.samples += samples
    built.conditions["memory.gpu0.total_bytes"] = total
    return memory(built, 10, None)


def test_peak_headroom_fragmentation_and_activations() -> None:
    (device,) = of([HELD, *rotation(range(100, 220))]).devices
    assert device.peak_ratio == 12 / 16
    assert device.headroom_bytes == 4 * GIB
    assert device.fragmentation_ratio == 3 / 12  # at the forward's end, where most is allocated
    assert device.unused_ratio == pytest.approx(2 / 12)
    assert device.activations_bytes == 5 * GIB
    assert device.activations_ratio == 0.5
    by_phase = {row.phase: row for row in device.phases}
    assert by_phase["forward"].growth_bytes == 5 * GIB
    assert by_phase["zero_grad"].growth_bytes == -GIB
    assert sum(row.growth_bytes or 0 for row in device.phases) == 0
    assert device.steady_steps == 116  # the first three are warm-up in any case


def test_gradients_that_were_cleared_before_are_not_taken_off_the_activations() -> None:
    cleared = [sample(b, b, phase, gradients_live_count=0.0) for b, phase in enumerate(list(AT_END) * 5, 100)]
    (device,) = of([HELD, *cleared]).devices
    assert device.gradients_live_in_forward is False
    assert device.activations_bytes == 6 * GIB


def test_the_phase_of_the_peak_is_known_from_neighbours_only() -> None:
    peaks = {"step": 4.0, "h2d": 4.0, "forward": 9.0, "zero_grad": 9.0, "backward": 10.0, "optimizer": 10.0}
    whole = [sample(n, 0, phase, allocated_peak_bytes=peaks[phase] * GIB) for n, phase in enumerate(AT_END)]
    (device,) = of(whole).devices
    assert device.peak_phase == "backward"
    assert {row.phase: row.peak_rise_bytes for row in device.phases}["forward"] == 5 * GIB
    later = [sample(100, 50, "forward", allocated_peak_bytes=11.0 * GIB)]
    assert of(whole + later).devices[0].peak_phase is None


def test_counters_are_those_of_steady_steps() -> None:
    early = [sample(b, b, "forward", device_allocs_count=float(b), retries_count=0.0) for b in range(3)]
    later = [
        sample(b, b, "forward", device_allocs_count=40.0 + b // 150, retries_count=2.0) for b in range(100, 200, 10)
    ]
    (device,) = of(early + later).devices
    assert (device.device_allocs_steady_count, device.steady_steps) == (1, 90)
    assert (device.retries_count, device.retries_steady_count) == (2, 0)
    assert device.device_frees_steady_count is None


def test_allocations_of_a_step_are_counted_from_one_end_of_a_phase_to_the_same_of_another_step() -> None:
    within = {"forward": 300.0, "backward": 1000.0}
    later = [
        sample(b, b, phase, allocations_total_count=1200.0 * b + within[phase])
        for b, phase in ((100, "forward"), (140, "backward"), (180, "forward"), (190, "backward"))
    ]
    (device,) = of(later).devices
    assert device.allocations_per_step == 1200.0
    (device,) = of(later[:2]).devices
    assert device.allocations_per_step is None


def test_what_was_not_read_is_none() -> None:
    bare = Sample(source="memory", subject="gpu0 forward", t_ns=5, values={"batch_index": 5.0, "allocated_bytes": 3.0})
    (device,) = of([bare], total=None).devices
    assert (device.headroom_bytes, device.fragmentation_ratio, device.retries_count) == (None, None, None)
    assert (device.activations_bytes, device.gradients_live_in_forward, device.peak_phase) == (None, None, None)
    assert of([]) == Memory()


def test_held_rows_come_back_as_they_were() -> None:
    (row,) = of([HELD]).held
    assert (row.device, row.dtype, row.parameters_bytes, row.buffers_bytes) == ("cuda:0", "float32", GIB, 0)
    assert (row.gradients_bytes, row.optimizer_state_bytes, row.total_bytes) == (GIB, 2 * GIB, 4 * GIB)


def test_growth_is_seen_across_points_of_the_step_and_none_where_there_is_none() -> None:
    phases = list(AT_END)
    leaking = [
        sample(b, b, phases[b % 6], allocated_bytes=AT_END[phases[b % 6]] * GIB + 1e6 * b) for b in range(100, 200, 5)
    ]
    (grown,) = of(leaking).growth
    assert grown.what == "gpu0 allocated"
    assert grown.bytes_per_step == pytest.approx(1e6)
    assert grown.p_value < 0.01
    assert grown.last_bytes - grown.first_bytes == pytest.approx(90e6)
    (still,) = of(rotation(range(100, 140))).growth
    assert (still.bytes_per_step, still.p_value) == (0.0, 1.0)


@pytest.mark.parametrize("leak", [0.0, 1e6])
@pytest.mark.parametrize("stride", [1, 3, 7])
def test_what_is_cleared_at_the_end_of_each_epoch_does_not_grow_across_them(leak: float, stride: int) -> None:
    built: Any = journal(900, epochs=3)
    built.samples += [
        sample(b, b, "step", allocated_bytes=8.0 * GIB + (b % 300) / 300 * GIB + leak * b)
        for b in range(20, 900, stride)
    ]
    (grown,) = memory(built, 10, None).growth
    assert grown.epochs == 3
    assert grown.bytes_per_step > leak  # the trend sees the teeth, as the first one is cut off
    assert grown.bytes_per_step_across_epochs == pytest.approx(leak, abs=1.0)


def test_one_epoch_tells_nothing_across_epochs() -> None:
    (grown,) = of(rotation(range(100, 140))).growth
    assert (grown.epochs, grown.bytes_per_step_across_epochs) == (1, None)


def test_noise_is_no_trend() -> None:
    random = np.random.default_rng(0)
    found = [trend(np.arange(50.0), random.normal(size=50)) for _ in range(200)]
    assert sum(t is not None and t.p_value < 0.05 for t in found) < 20
    assert trend(np.arange(9.0), np.arange(9.0)) is None
    assert trend(np.zeros(20), np.arange(20.0)) is None
    assert trend(np.arange(3000.0), np.arange(3000.0)) is not None
