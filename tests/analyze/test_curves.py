"""Samples of known times in, curves over the steps out."""

import numpy as np
import pytest
from built_journals import MS, build, journal

from lightning_gpuprof.analyze import curves as analyze_curves
from lightning_gpuprof.analyze.curves import curves, extremes
from lightning_gpuprof.analyze.during_steps import StepTime
from lightning_gpuprof.model.journal import Sample

SETUP_NS = 100 * MS


def nvml(t_ns: int, subject: str = "gpu0", **values: float | None) -> Sample:
    return Sample(source="nvml", subject=subject, t_ns=t_ns, values=values)


def test_a_sample_stands_where_its_step_is_and_at_its_time() -> None:
    of = journal(10)  # steps of 10 ms, from 100 ms on
    of.samples = [nvml(SETUP_NS + 35 * MS, utilization_ratio=0.5)]
    (curve,) = curves(of)
    assert (curve.source, curve.subject, curve.name) == ("nvml", "gpu0", "utilization_ratio")
    assert curve.batch == [3.5]
    assert curve.t_s == [0.135]
    assert curve.values == [0.5]


def test_before_between_and_after_the_steps_the_batch_stands_still() -> None:
    of = journal(4)
    of.steps.start_ns[2:] += 500 * MS  # a validation between the second and the third
    times = np.array([0, SETUP_NS + 15 * MS, SETUP_NS + 200 * MS, SETUP_NS + 400 * MS, 10_000 * MS], np.int64)
    assert list(StepTime(of).batches(times)) == pytest.approx([0.0, 1.5, 2.0, 2.0, 4.0])


def test_what_was_not_read_is_no_point_and_what_never_was_no_curve() -> None:
    of = journal(10)
    of.samples = [
        nvml(SETUP_NS, utilization_ratio=None, power_w=0.0),
        nvml(SETUP_NS + 10 * MS, utilization_ratio=None, power_w=80.0),
        nvml(SETUP_NS + 20 * MS, power_w=None),
    ]
    (curve,) = curves(of)
    assert (curve.name, curve.values) == ("power_w", [0.0, 80.0])


def test_host_and_allocator_have_curves_and_other_samples_none() -> None:
    of = journal(10)

    def sample(source: str, subject: str, at: int, **values: float | None) -> Sample:
        return Sample(source=source, subject=subject, t_ns=SETUP_NS + at * MS, values=values)

    of.samples = [
        sample("memory", "gpu0 backward", 30, allocated_bytes=7.0, reserved_bytes=9.0),
        sample("memory", "gpu0 forward", 20, allocated_bytes=5.0, retries_count=0.0),
        sample("memory", "held cuda:0 float32", 20, parameters_bytes=1.0),
        sample("host", "process", 10, cpu_cpus=1.5, rss_bytes=1e9, threads_count=4.0),
        sample("host", "training", 10, process_cpus=1.0),
        sample("host", "workers", 10, count=0.0, rss_bytes=0.0, cpu_cpus=0.0),
        sample("input", "loader0", 10, depth=1.0),
    ]
    found = {(c.source, c.subject, c.name): c.values for c in curves(of)}
    assert found == {
        ("host", "process", "cpu_cpus"): [1.5],
        ("host", "process", "rss_bytes"): [1e9],
        ("memory", "gpu0", "allocated_bytes"): [5.0, 7.0],
        ("memory", "gpu0", "reserved_bytes"): [9.0],
    }


def test_a_long_curve_is_bounded_and_keeps_its_extremes() -> None:
    of = journal(10)
    values = np.random.default_rng(1).uniform(0.2, 0.8, 50_000)
    values[31_337], values[40_001] = 0.99, 0.01
    of.samples = [nvml(SETUP_NS + i, utilization_ratio=float(v)) for i, v in enumerate(values)]
    (curve,) = build(of).curves
    assert len(curve.values) == len(curve.t_s) == len(curve.batch) <= analyze_curves.MAX_POINTS
    assert (max(curve.values), min(curve.values)) == (0.99, 0.01)
    assert curve.t_s == sorted(curve.t_s)


@pytest.mark.parametrize("n", [0, 1, 2, 3, 299, 300, 301, 1000])
def test_extremes_are_at_most_as_many_as_wanted(n: int) -> None:
    chosen = extremes(np.arange(n, dtype=np.float64), 300)
    assert len(chosen) <= 300
    assert list(chosen) == sorted(set(chosen))
    if n:
        assert {0, n - 1} <= set(chosen)


def test_only_so_many_gpus_have_curves() -> None:
    of = journal(10)
    of.samples = [nvml(SETUP_NS, f"gpu{i}", power_w=1.0) for i in range(12)]
    assert [curve.subject for curve in curves(of)] == [f"gpu{i}" for i in range(analyze_curves.MAX_GPUS)]


def test_a_journal_without_steps_has_curves_over_time() -> None:
    of = journal(0)
    of.samples = [nvml(5 * MS, power_w=1.0)]
    (curve,) = curves(of)
    assert (curve.t_s, curve.batch) == ([0.005], [0.0])
