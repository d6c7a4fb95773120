from __future__ import annotations

import pytest
from gpu_builder import errors, gpu, on

from lightning_gpuprof.rules.base import NotApplicable
from lightning_gpuprof.rules.hardware.nvlink_down import NvlinkDown

RULE = NvlinkDown()
RANKS = {"trainer.world_size": 8}


@pytest.mark.parametrize(("per_s", "fires"), [(99.0, False), (101.0, True)])
def test_broken_packets_are_normal_below_a_hundred_a_second(per_s: float, fires: bool) -> None:
    metrics = on(gpu(errors=errors(nvlink_crc_count=per_s * 20.0)), run=RANKS)  # 400 steps of 50 ms
    assert (RULE.check(metrics) is not None) is fires


def test_without_links_one_rank_has_nothing_to_judge() -> None:
    with pytest.raises(NotApplicable):
        RULE.check(on(gpu()))
