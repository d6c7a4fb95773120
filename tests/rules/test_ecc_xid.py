from __future__ import annotations

import pytest
from gpu_builder import errors, gpu, on

from lightning_gpuprof.model.device import ErrorCounter
from lightning_gpuprof.rules.base import MissingSignal, NotApplicable
from lightning_gpuprof.rules.hardware.ecc_xid import EccXid

RULE = EccXid()


@pytest.mark.parametrize(
    ("counter", "severity", "words"),
    [
        ("ecc_uncorrected_count", "critical", "1 uncorrected ECC error"),
        ("remapped_rows_count", "warning", "1 remapped row of memory"),
        ("memory_repair_pending_count", "warning", "a repair of memory that waits for a reset"),
        ("ecc_corrected_count", "info", "1 corrected ECC error"),
    ],
)
def test_a_counter_that_rises_by_one_is_a_finding(counter: str, severity: str, words: str) -> None:
    finding = RULE.check(on(gpu(errors=errors(**{counter: 1.0}))))
    assert finding is not None
    assert finding.severity == severity
    assert words in finding.summary
    assert "00000000:1A:00.0" in finding.advice
    assert finding.gain is None


def test_the_worst_of_several_decides() -> None:
    finding = RULE.check(on(gpu(errors=errors(ecc_corrected_count=7, ecc_uncorrected_count=2))))
    assert finding is not None
    assert finding.severity == "critical"
    assert "2 uncorrected ECC errors and 7 corrected ECC errors" in finding.summary


def test_what_was_counted_before_the_run_is_no_finding() -> None:
    assert RULE.check(on(gpu(errors=errors()))) is None


def test_errors_of_links_are_another_rule_s() -> None:
    assert RULE.check(on(gpu(errors=errors(nvlink_recovery_count=5)))) is None


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
    with pytest.raises(MissingSignal, match="gpu1: this GPU") as told:
        RULE.check(on(without, gpu(subject="gpu1")))
    assert not isinstance(told.value, NotApplicable)


def test_retired_pages_count_without_ecc() -> None:
    retired = (ErrorCounter(name="retired_pages_count", first=0, last=1),)
    assert RULE.check(on(gpu(facts={"ecc": False}, errors=retired))) is not None
