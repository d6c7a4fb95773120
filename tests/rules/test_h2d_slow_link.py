from __future__ import annotations

import msgspec
import pytest
from gpu_builder import copying_window, gpu, on
from metrics_builder import replace

from lightning_gpuprof.model.metrics import Metrics
from lightning_gpuprof.model.window import WindowFacts
from lightning_gpuprof.rules import claims
from lightning_gpuprof.rules.base import MissingSignal
from lightning_gpuprof.rules.transfers.h2d_slow_link import H2dSlowLink

RULE = H2dSlowLink()
PCIE5_X16 = 32e9 * 16 / 8 * 128 / 130
MIB = 2**20


def run(window: WindowFacts | None) -> Metrics:
    return replace(on(gpu()), windows=() if window is None else (window,))


def at(ratio: float, **changes: int | bool) -> WindowFacts:
    """A window whose copies reach so much of the link."""
    return copying_window(h2d_ms=64 * MIB / (ratio * PCIE5_X16) * 1e3, **changes)  # type: ignore[arg-type]


def test_it_fires_on_copies_far_below_the_link() -> None:
    finding = RULE.check(run(at(0.1)))
    assert finding is not None
    assert finding.severity == "warning"
    assert finding.summary.startswith("Copies of 64 MiB from pinned memory reach 6.3 GB/s, 10 % of what PCIe 5 x16")
    assert finding.gain is not None
    assert finding.explains == claims.BATCH_COPIES
    assert finding.gain.saved_ms_per_step == pytest.approx(64 * MIB * 9 / PCIE5_X16 * 1e3)
    assert finding.gain.saved_lower_ms_per_step == 0


@pytest.mark.parametrize(("ratio", "fires"), [(0.51, False), (0.49, True), (0.8, False)])
def test_half_of_the_link_decides(ratio: float, fires: bool) -> None:
    assert (RULE.check(run(at(ratio))) is not None) is fires


def test_a_link_that_is_slow_itself_is_another_rule_s() -> None:
    slow = gpu(values={"pcie_generation": 3.0, "pcie_width": 8.0})
    assert RULE.check(replace(on(slow), windows=(at(0.1),))) is None


@pytest.mark.parametrize(
    ("window", "why"),
    [
        (None, "no window holds 3 copies"),
        (at(0.1, pinned=False), "from pinned memory"),
        (copying_window(h2d_ms=9.0, bytes_each=MIB), "of 8 MiB or more"),
        (at(0.1, steps=2), "3 copies"),
    ],
)
def test_what_is_missing_is_said(window: WindowFacts | None, why: str) -> None:
    with pytest.raises(MissingSignal, match=why):
        RULE.check(run(window))


def mixed(*, average: int, largest: int) -> WindowFacts:
    """Copies of images beside labels of 2 kB, at a tenth of the link."""
    window = at(0.1, copies=2)
    assert window.analysis is not None
    assert window.analysis.api_tables is not None
    (row,) = window.analysis.api_tables.cuda_gpu_mem_size_sum
    row = msgspec.structs.replace(
        row, min_bytes=2000, max_bytes=largest, average_bytes=float(average), total_bytes=average * row.count
    )
    tables = msgspec.structs.replace(window.analysis.api_tables, cuda_gpu_mem_size_sum=(row,))
    return msgspec.structs.replace(window, analysis=msgspec.structs.replace(window.analysis, api_tables=tables))


def test_labels_beside_the_images_do_not_matter() -> None:
    finding = RULE.check(run(mixed(average=72 * MIB, largest=144 * MIB)))
    assert finding is not None
    assert finding.summary.startswith("Copies of 72 MiB on average from pinned memory")


def test_one_large_copy_among_small_ones_is_too_few() -> None:
    with pytest.raises(MissingSignal, match="no window holds 3 copies"):
        RULE.check(run(mixed(average=10 * MIB, largest=90 * MIB)))
