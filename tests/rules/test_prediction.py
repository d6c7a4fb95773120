"""What a change is expected to bring, beside the bound of it; the planted truths are those of fits that were run."""

from __future__ import annotations

import msgspec
import pytest
from feeding_builder import starved
from metrics_builder import build

from lightning_gpuprof.model.finding import Expected, Finding
from lightning_gpuprof.model.loading import LIKELY_RECEIVE_MS
from lightning_gpuprof.model.metrics import Metrics
from lightning_gpuprof.model.missing import measured
from lightning_gpuprof.model.phases import PHASES
from lightning_gpuprof.rules.engine import diagnose
from lightning_gpuprof.rules.prediction import WARM_MS, with_workers
from lightning_gpuprof.sinks import wording


def loads_by_itself(make_ms: float, rest_ms: float, *, cpu: float, cpus: float = 2.0) -> Metrics:
    """Without workers; ``cpu`` is the part of the making that is CPU work."""
    return build(
        times_ms={**dict.fromkeys(PHASES, 0.0), "data_wait": make_ms, "forward": rest_ms / 2, "backward": rest_ms / 2},
        num_workers=0,
        usable_cpus=cpus,
        process_cpus=(rest_ms + cpu * make_ms) / (make_ms + rest_ms),
        worker_cpus=None,
        run={"device.type": "cpu", "torch.num_threads": 1},
    )


def first(metrics: Metrics, rule: str) -> Finding:
    return next(finding for finding in diagnose(metrics).findings if finding.rule == rule)


# Mean steps of fits on two CPUs, run as they were and with the workers.
@pytest.mark.parametrize(
    ("make_ms", "rest_ms", "cpu", "workers", "after_ms"),
    [
        (81.4, 3.6, 0.03, 2, 41.8),
        (16.9, 2.5, 0.05, 1, 17.3),
        (8.8, 1.8, 0.07, 2, 4.7),
        (132.0, 2.1, 0.02, 2, 67.4),
        (8.2, 2.3, 1.0, 2, 7.0),
        (16.4, 3.5, 1.0, 2, 11.8),
        (16.4, 3.5, 1.0, 1, 18.2),
        (32.7, 1.95, 1.0, 1, 34.3),
    ],
)
def test_the_step_with_workers_is_that_of_the_fits_that_were_run(
    make_ms: float, rest_ms: float, cpu: float, workers: int, after_ms: float
) -> None:
    metrics = loads_by_itself(make_ms, rest_ms, cpu=cpu)
    found = with_workers(measured(metrics.loading), workers, metrics)
    assert abs(found.step_ms - after_ms) / found.whole_ms < 0.03
    assert found.lower_ms < after_ms < found.upper_ms


def test_more_workers_than_the_step_needs_leave_the_step_and_the_receipt_of_a_batch() -> None:
    metrics = starved(items_ms=39.0, workers=1, usable_cpus=16.0)
    state = measured(metrics.loading)
    assert with_workers(state, 16, metrics).step_ms == pytest.approx(state.compute_ms - WARM_MS + LIKELY_RECEIVE_MS)


def test_a_device_that_works_meanwhile_leaves_less_to_gain() -> None:
    metrics = starved(items_ms=39.0, workers=1, usable_cpus=16.0, device_idle=0.2, run={"device.type": "cuda"})
    state = measured(metrics.loading)
    assert with_workers(state, 16, metrics).step_ms == pytest.approx(0.8 * state.period_ms)


def test_every_finding_with_a_gain_and_a_change_says_what_to_expect() -> None:
    finding = first(loads_by_itself(82.0, 5.0, cpu=0.05), "single-process-loading")
    assert finding.gain is not None
    assert finding.expected is not None
    lower, upper = finding.expected.speedup_range
    assert 1 < lower < finding.expected.speedup < upper
    assert msgspec.structs.replace(finding, change=None).expected is not None  # stored, not computed when it is read


def test_the_words_have_the_bound_only_where_it_is_beyond_what_is_expected() -> None:
    gain = first(loads_by_itself(82.0, 5.0, cpu=0.05), "single-process-loading").gain
    assert gain is not None
    expected = Expected(whole_ms=87.0, step_ms=8.0, lower_ms=7.5, upper_ms=9.0)
    assert wording.gain(msgspec.structs.replace(gain, speedup_max=20.0), expected).startswith(
        "about 10.9x (9.67 to 11.6), at most 20x (saves "
    )
    assert wording.gain(msgspec.structs.replace(gain, speedup_max=11.0), expected) == "about 10.9x (9.67 to 11.6)"
    assert wording.gain(msgspec.structs.replace(gain, speedup_max=11.0)).startswith("up to 11x")
