from __future__ import annotations

import pytest
from findings_builder import fired
from gpu_builder import errors, gpu, on

from lightning_gpuprof.model.device import ErrorCounter
from lightning_gpuprof.rules.base import MissingSignal, NotApplicable
from lightning_gpuprof.rules.hardware.ecc_xid import EccXid

RULE = EccXid()


def test_the_worst_of_several_decides() -> None:
    finding = fired(RULE, on(gpu(errors=errors(ecc_corrected_count=7, ecc_uncorrected_count=2))))
    assert finding.severity == "critical"
    assert "2 uncorrected ECC errors and 7 corrected ECC errors" in finding.summary


@pytest.mark.parametrize("counters", [(), (ErrorCounter(name="nvlink_crc_count", first=0, last=0),)])
def test_without_counters_of_memory_it_is_not_judged(counters: tuple[ErrorCounter, ...]) -> None:
    with pytest.raises(MissingSignal, match="has no counters of memory errors") as told:
        RULE.check(on(gpu(errors=counters)))
    assert not isinstance(told.value, NotApplicable)


def test_a_gpu_without_ecc_has_nothing_to_judge() -> None:
    without = gpu(facts={"ecc": False})
    with pytest.raises(NotApplicable, match="ECC is off"):
        RULE.check(on(without))
    assert RULE.check(on(without, gpu(errors=errors()))) is None
    with pytest.raises(MissingSignal, match="gpu1: the GPU") as told:
        RULE.check(on(without, gpu(subject="gpu1")))
    assert not isinstance(told.value, NotApplicable)


def test_retired_pages_count_without_ecc() -> None:
    retired = (ErrorCounter(name="retired_pages_count", first=0, last=1),)
    assert RULE.check(on(gpu(facts={"ecc": False}, errors=retired))) is not None
