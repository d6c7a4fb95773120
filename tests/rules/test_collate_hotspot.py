from __future__ import annotations

import pytest
from feeding_builder import starved
from metrics_builder import build

from lightning_gpuprof.model.metrics import Metrics
from lightning_gpuprof.rules.base import MissingSignal
from lightning_gpuprof.rules.input.collate_hotspot import CollateHotspot

RULE = CollateHotspot()


def planted(
    collate_ms: float = 30.0, items_ms: float = 10.0, *, function: str = "pad_batch", **changes: object
) -> Metrics:
    run = {"loader.collate_fn": function, **changes.pop("run", {})}  # type: ignore[dict-item]
    return starved(items_ms=items_ms, collate_ms=collate_ms, run=run, **changes)  # type: ignore[arg-type]


def test_it_names_the_function_and_its_time() -> None:
    finding = RULE.check(planted())
    assert finding is not None
    assert finding.subject == "pad_batch"
    assert finding.severity == "critical"
    assert (
        "pad_batch (collate_fn) takes 75 % of the 40.0 ms in which a batch is made (30.0 ms a batch, 0.938 ms a sample)"
        in finding.summary
    )
    assert "Without it 2 workers deliver a batch every 5.00 ms" in finding.advice
    assert finding.gain is not None
    assert finding.gain.saved_ms_per_step == pytest.approx(40 / 2 - 10.0)


def test_the_default_function_gets_the_advice_to_return_tensors() -> None:
    finding = RULE.check(planted(function="default_collate", run={"batch.bytes": 4_000}))
    assert finding is not None
    assert "default_collate needs 30.0 ms for a batch of 4 kB" in finding.advice


def test_collation_that_copies_as_fast_as_memory_allows_needs_smaller_samples() -> None:
    finding = RULE.check(planted(function="default_collate", run={"batch.bytes": 60_000_000}))
    assert finding is not None
    assert "moves 60 MB at 2 GB/s" in finding.advice
    assert "uint8" in finding.advice


@pytest.mark.parametrize(("collate_ms", "fires"), [(9.9, False), (10.1, True)])
def test_a_quarter_of_the_making_decides(collate_ms: float, fires: bool) -> None:
    assert (RULE.check(planted(collate_ms, 40.0 - collate_ms)) is not None) is fires


def test_it_is_quiet_where_the_items_are_slow() -> None:
    assert RULE.check(planted(1.0, 39.0)) is None


def test_it_is_quiet_where_steps_do_not_wait() -> None:
    assert RULE.check(planted(6.0, 6.0)) is None
    assert RULE.check(build()) is None


def test_it_is_quiet_where_a_cheap_batch_is_collated_on_the_training_thread() -> None:
    assert RULE.check(planted(0.5, 0.3, workers=0)) is None


def test_what_was_not_measured_from_inside_is_not_judged() -> None:
    with pytest.raises(MissingSignal, match="not measured from inside"):
        RULE.check(planted(measured=False))
