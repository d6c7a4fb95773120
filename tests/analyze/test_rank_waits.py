"""What a rank waits for others in its own phases: timed at the end of the backward, elsewhere by looks."""

import msgspec
import numpy as np
import pytest
from built_journals import MS, SLOTS, journal
from msgspec.structs import replace

from lightning_gpuprof.analyze.journal_columns import Journal
from lightning_gpuprof.analyze.rank_waits import MIN_LOOKS, waits_of
from lightning_gpuprof.model.journal import GRADIENT_WAIT, Slot
from lightning_gpuprof.model.phases import WORKING_PHASES

N = 50
BACKWARD, WAIT = len(SLOTS), len(SLOTS) + 1
FORWARD = next(slot.id for slot in SLOTS if slot.phase == "forward")


def rank(
    strategy: str = "DDPStrategy", *, device: str = "cpu", ranks: int = 2, looks: int = 0, in_one: int = 0
) -> Journal:
    one = journal(N)
    charged = {**one.steps.charged, BACKWARD: np.full(N, 3 * MS), WAIT: np.full(N, 2 * MS)}
    return replace(
        one,
        header=msgspec.structs.replace(one.header, world_size=ranks),
        slots=[
            *one.slots,
            Slot(id=BACKWARD, action="backward", phase="backward"),
            Slot(id=WAIT, action=GRADIENT_WAIT, phase="backward"),
        ],
        steps=replace(one.steps, charged=charged),
        conditions={**one.conditions, "trainer.strategy": strategy, "device.type": device},
        looks={FORWARD: looks},
        in_collectives={FORWARD: in_one},
    )


def waits_ms(one: Journal) -> dict[str, float]:
    found = waits_of(one)
    return {phase: float(np.mean(ns)) / MS for phase, ns in found.items()}


def test_the_end_of_the_backward_is_in_one_and_nothing_else_under_ddp() -> None:
    assert waits_ms(rank()) == {**dict.fromkeys(WORKING_PHASES, 0.0), "backward": 2.0}


@pytest.mark.parametrize("strategy", ["DDPStrategy", "ModelParallelStrategy"])
def test_looks_into_collectives_are_a_share_of_the_phase(strategy: str) -> None:
    found = waits_ms(rank(strategy, looks=40, in_one=30))
    assert found["forward"] == pytest.approx(0.75 * 5)
    assert found["backward"] == 2.0


def test_nothing_is_separated_by_few_looks_on_a_device_or_of_one_rank() -> None:
    assert waits_ms(rank("ModelParallelStrategy", looks=MIN_LOOKS - 1, in_one=10)) == {}
    assert waits_ms(rank(device="cuda")) == {}
    assert waits_ms(rank(ranks=1)) == {}


def test_without_its_end_the_backward_is_not_separated() -> None:
    one = rank()
    assert "backward" not in waits_ms(replace(one, slots=one.slots[:WAIT], steps=journal(N).steps))
