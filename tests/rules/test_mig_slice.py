from __future__ import annotations

import pytest
from gpu_builder import gpu, on

from lightning_gpuprof.rules.base import MissingSignal
from lightning_gpuprof.rules.hardware.mig_slice import MigSlice

RULE = MigSlice()


def test_a_slice_is_named_with_what_is_not_known_of_it() -> None:
    absent = dict.fromkeys(("utilization_ratio", "sm_clock_mhz", "power_w", "temperature_c"))
    finding = RULE.check(on(gpu(uuid="MIG-1", facts={"mig": True, "memory_total_bytes": 2.0**34}, values=absent)))
    assert finding is not None
    assert (finding.severity, finding.gain) == ("info", None)
    assert "a slice of 16 GiB" in finding.summary
    assert finding.summary.endswith("Not told for a slice: utilization, clocks, power, temperature.")


def test_a_whole_gpu_is_no_slice() -> None:
    assert RULE.check(on(gpu())) is None


def test_a_partitioned_gpu_that_is_used_as_a_whole_is_no_slice() -> None:
    assert RULE.check(on(gpu(facts={"mig": True}))) is None


def test_a_gpu_that_tells_nothing_is_not_judged() -> None:
    with pytest.raises(MissingSignal, match="whether the GPU is partitioned"):
        RULE.check(on(gpu(uuid="", facts={"mig": None})))
