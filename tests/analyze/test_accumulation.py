"""Optimizer steps of manual optimization, and the waits for other ranks in batches without one."""

import msgspec
import numpy as np
import pytest
from built_journals import MS, SLOTS, build, journal
from msgspec.structs import replace

from lightning_gpuprof.analyze.accumulation import accumulation
from lightning_gpuprof.analyze.journal import Journal
from lightning_gpuprof.model.accumulation import Accumulation
from lightning_gpuprof.model.journal import GRADIENT_WAIT, Slot, Value
from lightning_gpuprof.model.missing import Unmeasured

N, WAIT = 100, len(SLOTS)
BATCHES = np.arange(N)


def rank(every: int, *, optimizers: int = 1, timed: bool = True, ranks: int = 2, **conditions: Value) -> Journal:
    """An optimizer steps in each so many batches, which wait 30 ms for the others; the other batches wait 20 ms."""
    one = journal(N)
    waits = np.where((BATCHES + 1) % every == 0, 30 * MS, 20 * MS)
    slots = [*one.slots, Slot(id=WAIT, action=GRADIENT_WAIT, phase="backward")] if timed else one.slots
    charged = {**one.steps.charged, **({WAIT: waits} if timed else {})}
    manual: dict[str, Value] = {"model.automatic_optimization": False, "trainer.strategy": "DDPStrategy"}
    return replace(
        one,
        header=msgspec.structs.replace(one.header, world_size=ranks),
        slots=slots,
        steps=replace(one.steps, charged=charged, stepped=optimizers * ((BATCHES % every == 0) & (BATCHES > 0))),
        conditions={**one.conditions, **manual, **conditions},
    )


def found(one: Journal) -> Accumulation | Unmeasured | None:
    return accumulation(one, np.ones(N, np.bool_))


def test_batches_without_a_step_are_counted_with_their_wait() -> None:
    of = found(rank(4))
    assert isinstance(of, Accumulation)
    assert of.unstepped_ratio == pytest.approx(0.75, abs=0.01)
    assert of.steps_per_batch == pytest.approx(0.25, abs=0.01)
    assert of.batches_per_step == 4
    assert (of.wait_ms, of.least_wait_ms) == (20.0, 20.0)


def test_steps_of_several_optimizers_add_up() -> None:
    of = found(rank(2, optimizers=2))
    assert isinstance(of, Accumulation)
    assert of.unstepped_ratio == pytest.approx(0.5, abs=0.01)
    assert of.steps_per_batch == pytest.approx(1.0, abs=0.02)


def test_there_is_no_wait_where_each_batch_has_a_step_or_waits_are_not_timed() -> None:
    for one in (rank(1), rank(4, timed=False)):
        of = found(one)
        assert isinstance(of, Accumulation)
        assert of.wait_ms is None
        assert of.least_wait_ms is None


def test_the_batches_of_a_report_are_the_steady_ones() -> None:
    of = build(rank(4)).accumulation
    assert isinstance(of, Accumulation)
    assert of.wait_ms == 20.0


@pytest.mark.parametrize(
    "one",
    [
        rank(4, **{"model.automatic_optimization": True}),
        rank(4, **{"trainer.strategy": "FSDPStrategy"}),
        rank(4, ranks=1),
    ],
)
def test_it_is_nothing_where_ddp_reduces_no_gradients_of_manual_optimization(one: Journal) -> None:
    assert found(one) is None


def test_it_is_not_measured_where_no_step_was_counted() -> None:
    assert isinstance(found(rank(N)), Unmeasured)
    assert isinstance(accumulation(rank(4), np.zeros(N, np.bool_)), Unmeasured)
