from __future__ import annotations

import pytest
from device_builder import STEPS, collective, distributed, without_windows
from metrics_builder import replace
from msgspec.structs import replace as changed

from lightning_gpuprof.model.metrics import Metrics
from lightning_gpuprof.rules.base import MissingSignal
from lightning_gpuprof.rules.ranks.comm_slow_link import CommSlowLink

RULE = CommSlowLink()


def at(gb_per_s: float, *, mb: float = 25.0, waiting_ms: float = 0.0, count: int = 2 * STEPS, **run: object) -> Metrics:
    """All-reduces of 8 ranks whose fastest has this bus bandwidth."""
    ms = mb * 2**20 * 2 * 7 / 8 / (gb_per_s * 1e6)
    return distributed([collective(ms + waiting_ms, mb=mb, min_ms=ms, count=count)], run=run)  # type: ignore[arg-type]


def on(metrics: Metrics, gpu: str) -> Metrics:
    window = metrics.windows[0]
    assert window.analysis is not None
    return replace(metrics, windows=(changed(window, analysis=changed(window.analysis, gpus=(gpu,))),))


def test_it_tells_the_bandwidth_and_that_of_nvlink() -> None:
    finding = RULE.check(at(11.2))
    assert finding is not None
    assert finding.severity == "warning"
    assert "reaches 11.2 GB/s; NVLink carries 300" in finding.summary
    assert "nvidia-smi nvlink" in finding.advice


def test_the_variable_that_switches_peers_off_is_named() -> None:
    finding = RULE.check(at(11.2, **{"env.NCCL_P2P_DISABLE": "1"}))
    assert finding is not None
    assert finding.advice.startswith("Unset NCCL_P2P_DISABLE")


def test_nvlink_at_work_is_quiet() -> None:
    assert RULE.check(at(200.0)) is None


def test_a_late_rank_is_no_slow_link() -> None:
    assert RULE.check(at(200.0, waiting_ms=8.0)) is None


def test_the_only_large_collective_of_a_step_may_always_wait() -> None:
    assert RULE.check(at(5.0, count=STEPS)) is None


@pytest.mark.parametrize("gpu", ["NVIDIA A100-PCIE-40GB", "NVIDIA H100 NVL", "NVIDIA L40S", "Tesla V100-SXM2-32GB"])
def test_devices_that_need_not_have_full_nvlink_are_passed_over(gpu: str) -> None:
    assert RULE.check(on(at(11.2), gpu)) is None


def test_several_nodes_are_passed_over() -> None:
    assert RULE.check(at(11.2, **{"trainer.num_nodes": 2})) is None


@pytest.mark.parametrize(("gb_per_s", "fires"), [(31.9, True), (32.1, False)])
def test_the_boundary_is_what_pcie_carries(gb_per_s: float, fires: bool) -> None:
    assert (RULE.check(at(gb_per_s, mb=64.0)) is not None) is fires


def test_it_is_not_evaluated_without_sizes_or_windows() -> None:
    with pytest.raises(MissingSignal, match="16 MiB"):
        RULE.check(distributed([collective(6.0, mb=None)]))
    with pytest.raises(MissingSignal, match="nodes"):
        RULE.check(at(11.2, **{"trainer.num_nodes": None}))
    with pytest.raises(MissingSignal, match="no trace window"):
        RULE.check(without_windows(at(11.2)))
