from __future__ import annotations

import pytest
from gpu_builder import errors, gpu, on

from lightning_gpuprof.rules.base import MissingSignal, NotApplicable
from lightning_gpuprof.rules.hardware.nvlink_down import NvlinkDown

RULE = NvlinkDown()
RANKS = {"trainer.world_size": 8}


def test_a_recovery_between_ranks_is_a_warning() -> None:
    finding = RULE.check(on(gpu(errors=errors(nvlink_recovery_count=2)), run=RANKS))
    assert finding is not None
    assert finding.severity == "warning"
    assert finding.summary == "2 NVLink recoveries on NVIDIA H200 (gpu0) during this run."


def test_a_run_that_does_not_use_the_links_is_only_informed() -> None:
    finding = RULE.check(on(gpu(errors=errors(nvlink_recovery_count=1))))
    assert finding is not None
    assert finding.severity == "info"


def test_it_is_quiet_on_healthy_links() -> None:
    assert RULE.check(on(gpu(errors=errors()), run=RANKS)) is None


@pytest.mark.parametrize(("per_s", "fires"), [(99.0, False), (101.0, True)])
def test_broken_packets_are_normal_below_a_hundred_a_second(per_s: float, fires: bool) -> None:
    metrics = on(gpu(errors=errors(nvlink_crc_count=per_s * 20.0)), run=RANKS)  # 400 steps of 50 ms
    assert (RULE.check(metrics) is not None) is fires


def test_errors_of_memory_are_another_rule_s() -> None:
    assert RULE.check(on(gpu(errors=errors(ecc_uncorrected_count=5)), run=RANKS)) is None


def test_without_links_it_is_not_judged() -> None:
    with pytest.raises(MissingSignal, match="no errors of NVLinks were counted") as told:
        RULE.check(on(gpu(), run=RANKS))
    assert not isinstance(told.value, NotApplicable)


def test_without_links_one_rank_has_nothing_to_judge() -> None:
    with pytest.raises(NotApplicable):
        RULE.check(on(gpu()))
