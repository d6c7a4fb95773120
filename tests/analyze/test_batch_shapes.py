"""Shapes of inspected batches beside the time of their steps: whether these follow the size of the batch."""

from collections.abc import Sequence

import numpy as np
import pytest
from built_journals import MS, build, journal

from lightning_gpuprof.analyze.journal_columns import Journal
from lightning_gpuprof.model.batch_shapes import BatchShapes
from lightning_gpuprof.model.journal import PROFILED, Sample
from lightning_gpuprof.model.missing import Unmeasured

INSPECTED = (1, 2, 3, 4, 6, 9, 13, 19, 28, 42, 63, 94, 141)
LENGTHS = np.random.default_rng(2).integers(8, 200, 200)


def looked_at(forward_ms: object, lengths: Sequence[int] | np.ndarray, *, late_s: float = 0.0) -> Journal:
    """200 steps whose batches have these lengths; of each inspected one a sample was taken half a second later."""
    of = journal(200, forward_ms=forward_ms)
    for row in INSPECTED:
        at_ns = int(of.steps.start_ns[row] + MS + late_s * 1e9)
        of.samples.append(
            Sample(
                source="input",
                subject=f"loader0.shapes:16x{lengths[row]}, 16",
                t_ns=at_ns + 500 * MS,
                values={"elements_count": 16.0 * lengths[row] + 16, "age_s": 0.5},
            )
        )
    return of


def shapes_of(of: Journal) -> BatchShapes:
    found = build(of).batch_shapes
    assert isinstance(found, BatchShapes)
    return found


def test_steps_that_follow_the_size_of_the_batch_are_seen() -> None:
    found = shapes_of(looked_at(0.2 * LENGTHS, LENGTHS))
    inspected, all_of_them = LENGTHS[list(INSPECTED[4:])], LENGTHS[list(INSPECTED)]
    assert (found.looks, found.shapes, found.compared) == (13, len(set(all_of_them.tolist())), 9)
    assert found.correlation == pytest.approx(1.0)
    assert (found.smallest, found.largest) == (f"16x{inspected.min()}, 16", f"16x{inspected.max()}, 16")
    times_ms = 5 + 0.2 * inspected
    assert found.spread_ratio == pytest.approx(times_ms.std() / times_ms.mean())
    assert (found.smallest_ms, found.largest_ms) == (pytest.approx(times_ms.min()), pytest.approx(times_ms.max()))


def test_slow_first_steps_do_not_hide_it() -> None:
    forward_ms = 0.2 * LENGTHS
    forward_ms[:5] += 2000
    assert shapes_of(looked_at(forward_ms, LENGTHS)) == shapes_of(looked_at(0.2 * LENGTHS, LENGTHS))


def test_traced_steps_are_not_compared() -> None:
    of = looked_at(0.2 * LENGTHS, LENGTHS)
    of.steps.flags[[28, 42]] |= PROFILED
    assert shapes_of(of).compared == 7


def test_steps_that_vary_by_themselves_do_not_follow_it() -> None:
    found = shapes_of(looked_at(0.2 * np.random.default_rng(5).permutation(LENGTHS), LENGTHS))
    assert found.shapes > 8
    assert found.correlation < 0.6


def test_steps_that_are_shorter_for_larger_batches_do_not_follow_it() -> None:
    assert shapes_of(looked_at(0.2 * (210 - LENGTHS), LENGTHS)).correlation == 0.0


def test_batches_of_one_length_have_one_shape() -> None:
    found = shapes_of(looked_at(0.2 * LENGTHS, [64] * 200))
    assert (found.shapes, found.correlation, found.spread_ratio) == (1, 0.0, 0.0)


def test_batches_that_were_handed_over_in_no_step_are_not_compared() -> None:
    assert shapes_of(looked_at(0.2 * LENGTHS, LENGTHS, late_s=1e3)).compared == 0
    assert shapes_of(looked_at(0.2 * LENGTHS, LENGTHS, late_s=-1e3)).compared == 0


def test_a_run_of_which_no_batch_was_inspected_is_not_judged() -> None:
    assert isinstance(build(journal(200)).batch_shapes, Unmeasured)
    assert isinstance(build(journal(0)).batch_shapes, Unmeasured)
