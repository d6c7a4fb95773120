from __future__ import annotations

from pathlib import Path

import pytest
from device_builder import POINTWISE, STEPS, Kernels, operator, without_windows
from test_channels_last_missing import CONVOLUTION

from lightning_gpuprof.model.journal import Value
from lightning_gpuprof.model.metrics import Metrics
from lightning_gpuprof.model.trace.operators import OperatorShapes
from lightning_gpuprof.rules.base import MissingSignal
from lightning_gpuprof.rules.kernels.cudnn_benchmark_off import CudnnBenchmarkOff

RULE = CudnnBenchmarkOff()
SHAPE = "32x64x56x56, 64x64x3x3"
OFF: dict[str, Value] = {"flags.cudnn_benchmark": False, "flags.cudnn_deterministic": False}


def run_of(
    folder: Path,
    ms: float = 30.0,
    *,
    rows: list[OperatorShapes] | None = None,
    shapes: bool = True,
    **run: Value,
) -> Metrics:
    kernels = Kernels().add(CONVOLUTION, ms).add(POINTWISE, 49 - ms)
    operators = rows or [operator("aten::cudnn_convolution", SHAPE, ms, occurrences=4 * STEPS)]
    return kernels.metrics(folder, operators=operators if shapes else None, run={**OFF, **run})


def test_it_is_a_hint_without_a_gain(tmp_path: Path) -> None:
    finding = RULE.check(run_of(tmp_path, **{"loader.drop_last": False}))
    assert finding is not None
    assert finding.severity == "info"
    assert finding.gain is None
    assert finding.advice.startswith("cudnn.benchmark is off: set Trainer(benchmark=True), and drop_last=True")


@pytest.mark.parametrize(
    "run",
    [{"flags.cudnn_benchmark": True}, {"flags.cudnn_deterministic": True}, {"flags.deterministic_algorithms": True}],
)
def test_it_is_quiet_where_the_setting_is_right(tmp_path: Path, run: dict[str, Value]) -> None:
    assert RULE.check(run_of(tmp_path, **run)) is None


def test_shapes_that_vary_would_make_it_worse(tmp_path: Path) -> None:
    rows = [
        operator("aten::cudnn_convolution", "32x64x56x56, 64x64x3x3", 20.0, occurrences=3),
        operator("aten::cudnn_convolution", "32x64x64x64, 64x64x3x3", 10.0, occurrences=2),
    ]
    assert RULE.check(run_of(tmp_path, rows=rows)) is None


@pytest.mark.parametrize(("ms", "fires"), [(9.99, False), (10.01, True)])
def test_the_boundary_is_a_fifth_of_the_step(tmp_path: Path, ms: float, fires: bool) -> None:
    assert (RULE.check(run_of(tmp_path, ms)) is not None) is fires


def test_it_is_not_evaluated_without_its_signals(tmp_path: Path) -> None:
    with pytest.raises(MissingSignal, match="record_shapes"):
        RULE.check(run_of(tmp_path, shapes=False))
    with pytest.raises(MissingSignal, match="benchmark"):
        RULE.check(run_of(tmp_path, **{"flags.cudnn_benchmark": None}))
    with pytest.raises(MissingSignal, match="no trace window"):
        RULE.check(without_windows(run_of(tmp_path)))
