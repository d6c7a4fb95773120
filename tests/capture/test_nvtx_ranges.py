"""NVTX ranges with a backend that writes down the nesting; real Lightning action names."""

import re
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import lightning.pytorch as pl
import pytest
import torch
from equipped import Equipped
from lightning.pytorch.demos.boring_classes import BoringModel
from noting_nvtx import NotingNvtx
from quiet_trainer import trainer_in

from lightning_gpuprof import GpuProfiler, annotate
from lightning_gpuprof.capture.nvtx_ranges import NvtxRange, NvtxRanges, TorchNvtx, range_name
from lightning_gpuprof.capture.step_clock import StepClock
from lightning_gpuprof.model.phases import Region


def wrap_nothing(region: Region, wrap: object) -> None:
    """There is no tap."""


def make(backend: NotingNvtx | TorchNvtx, failures: list[Exception] | None = None) -> NvtxRanges:
    reported = failures if failures is not None else []
    return NvtxRanges(
        backend, manual=False, overridden=frozenset(), wrap_actions=wrap_nothing, on_failure=reported.append
    )


@pytest.fixture
def backend() -> NotingNvtx:
    return NotingNvtx()


@pytest.mark.parametrize(
    ("action", "name"),
    [
        ("[_TrainingEpochLoop].train_dataloader_next", "data_wait"),
        ("[Strategy]SingleDeviceStrategy.batch_to_device", "h2d"),
        ("[Strategy]SingleDeviceStrategy.training_step", "forward"),
        ("[Strategy]SingleDeviceStrategy.backward", "backward"),
        ("[LightningModule]Model.optimizer_step", "optimizer"),
        ("[LightningModule]Model.optimizer_zero_grad", "zero_grad"),
        ("[LightningModule]Model.configure_gradient_clipping", None),  # nothing is clipped
        ("[Callback]EMA{'decay': 0.9}.on_train_batch_end", "EMA.on_train_batch_end"),
        ("[LightningModule]Model.on_train_batch_start", None),  # not overridden: nothing in it
        ("run_training_batch", None),
        ("run_training_epoch", "run_training_epoch"),
        ("save_checkpoint", "checkpoint"),
        ("evaluation loop", "validation"),
        ("broadcast_sigterm", "sync"),
        ("self.log", "logging"),
        ("[Strategy]SingleDeviceStrategy.validation_step", "forward"),
        ("[_EvaluationLoop].val_next", "data_wait"),
        ("[Callback]EMA.on_validation_start", "EMA.on_validation_start"),
    ],
)
def test_ranges_are_named_like_the_phases_of_the_reports(action: str, name: str | None) -> None:
    assert range_name(action, manual=False, overridden=frozenset()) == name


def test_ranges_nest_as_the_actions_do_and_steps_follow_each_other(backend: NotingNvtx) -> None:
    ranges = make(backend)
    optimizer = ranges.wrap("[LightningModule]M.optimizer_step", nullcontext())
    forward = ranges.wrap("[Strategy]S.training_step", nullcontext())
    for batch in (4, 5):
        ranges.begin_step(batch)
        with optimizer, forward:
            pass
    ranges.end_step()
    ranges.end_step()
    assert backend.paths == [
        "step 4",
        "step 4/optimizer",
        "step 4/optimizer/forward",
        "step 5",
        "step 5/optimizer",
        "step 5/optimizer/forward",
    ]
    assert backend.open == []


def test_a_range_may_be_nested_in_itself(backend: NotingNvtx) -> None:
    forward = make(backend).wrap("[Strategy]S.training_step", nullcontext())
    with forward, forward:
        assert backend.open == ["forward", "forward"]
    assert backend.open == []


def test_an_exception_passes_through_and_closes_the_range(backend: NotingNvtx) -> None:
    forward = make(backend).wrap("[Strategy]S.training_step", nullcontext())
    with pytest.raises(ZeroDivisionError), forward:
        raise ZeroDivisionError
    assert backend.open == []


def test_what_is_wrapped_still_measures() -> None:
    clock = StepClock()
    slot = clock.slot("forward", "forward")
    inside: list[int] = []
    with NvtxRange(clock.context(slot), "forward", NotingNvtx()):
        inside.append(clock.current_slot())
    assert inside == [slot]
    assert clock.current_slot() != slot


def test_actions_without_a_range_and_wrapped_ones_stay_as_they_are() -> None:
    ranges = make(NotingNvtx())
    context = nullcontext()
    assert ranges.wrap("run_training_batch", context) is context
    once = ranges.wrap("[Strategy]S.training_step", context)
    assert ranges.wrap("[Strategy]S.training_step", once) is once


def test_a_backend_that_fails_is_reported_once_and_the_actions_go_on() -> None:
    failures: list[Exception] = []
    ranges = make(NotingNvtx(broken=True), failures)
    forward = ranges.wrap("[Strategy]S.training_step", nullcontext())
    ran = 0
    for batch in range(3):
        ranges.begin_step(batch)
        with forward:
            ran += 1
    ranges.end_step()
    assert ran == 3
    assert [str(error) for error in failures] == ["NVTX functions not installed"]
    context = nullcontext()
    assert ranges.wrap("[Strategy]S.training_step", context) is context


@pytest.mark.skipif(torch.version.cuda is not None, reason="this torch has NVTX")
def test_a_torch_without_nvtx_switches_ranges_off() -> None:
    failures: list[Exception] = []
    with make(TorchNvtx(), failures).wrap("[Strategy]S.training_step", nullcontext()):
        pass
    assert [type(error) for error in failures] == [RuntimeError]


@pytest.mark.skipif(torch.version.cuda is not None, reason="this torch has NVTX")
def test_a_coloured_range_is_made_by_the_package_nvtx_and_any_other_by_torch() -> None:
    pytest.importorskip("nvtx")
    backend = TorchNvtx()
    backend.push("region", 0x76B900)
    with pytest.raises(RuntimeError):  # torch's
        backend.push("region")


@pytest.mark.skipif(torch.version.cuda is not None, reason="this torch has NVTX")
def test_torch_ends_the_ranges_of_both_and_what_was_not_begun_is_no_error_of_ours() -> None:
    with pytest.raises(RuntimeError, match="NVTX"):
        TorchNvtx().pop()


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device here")
def test_real_ranges_are_pushed_and_popped() -> None:
    depth = torch.cuda.nvtx.range_push("outside")
    failures: list[Exception] = []
    ranges = make(TorchNvtx(), failures)
    ranges.begin_step(0)
    with ranges.wrap("[Strategy]S.training_step", nullcontext()):
        pass
    ranges.end_step()
    assert torch.cuda.nvtx.range_pop() == depth
    assert failures == []


def with_ranges(backend: NotingNvtx, folder: Path, *, nvtx: bool | None = True) -> Equipped:
    return Equipped({"ranges": lambda: backend}, windows=[], reports=[], nvtx=nvtx, dirpath=str(folder / "out"))


def fit(callback: GpuProfiler, folder: Path, model: pl.LightningModule | None = None, **options: Any) -> None:
    limits = {"max_epochs": 3, "limit_train_batches": 8, "limit_val_batches": 2, "num_sanity_val_steps": None}
    trainer = trainer_in(folder, [callback], **{**limits, **options})
    trainer.fit(model or BoringModel())


@pytest.mark.parametrize("profiler", [None, "simple"])
def test_steps_phases_and_validation_nest_as_lightning_runs_them(
    tmp_path: Path, profiler: str | None, backend: NotingNvtx
) -> None:
    fit(with_ranges(backend, tmp_path), tmp_path, profiler=profiler)
    assert backend.open == []
    last_epoch = [path for path in backend.paths if path.startswith("run_training_epoch/step 16")]
    assert [path.removeprefix("run_training_epoch/") for path in last_epoch] == [
        "step 16",
        "step 16/data_wait",
        "step 16/h2d",
        "step 16/optimizer",
        "step 16/optimizer/forward",
        "step 16/optimizer/zero_grad",
        "step 16/optimizer/backward",
    ]
    steps = [path for path in backend.paths if re.fullmatch(r"(run_training_epoch/)?step \d+", path)]
    assert [int(path.rsplit(" ", 1)[1]) for path in steps][:8] == list(range(8))
    assert any(path.endswith("validation/forward") for path in backend.paths)


def test_a_region_has_the_colour_that_the_user_gives_it(tmp_path: Path, backend: NotingNvtx) -> None:
    pytest.importorskip("nvtx")

    class Coloured(BoringModel):
        def training_step(self, batch: Any, batch_idx: int) -> Any:
            with annotate("augment", color=" #76B900"), annotate("loss", color="no colour"):
                return super().training_step(batch, batch_idx)

    fit(with_ranges(backend, tmp_path), tmp_path, Coloured())
    assert any(path.endswith("forward/augment/loss") for path in backend.paths)
    assert backend.colors == {"augment": 0x76B900}


def test_a_colour_is_known_before_its_range_begins(backend: NotingNvtx) -> None:
    colors: Any = pytest.importorskip("nvtx.colors")
    given = {"augment": "green", "loss": "#1234567", "copy": ""}
    ranges = make(backend)
    ranges.colors = given
    made = [ranges.wrap(f"[annotate]{name}", nullcontext()) for name in given]
    ranges.colors = {}
    for one in made:
        with one:
            pass
    assert backend.colors == {"augment": colors.color_to_hex("green")}


def test_an_exception_in_a_step_leaves_no_range_open(tmp_path: Path, backend: NotingNvtx) -> None:
    class Failing(BoringModel):
        def training_step(self, batch: Any, batch_idx: int) -> Any:
            if batch_idx == 5:
                raise ValueError("of the user")
            return super().training_step(batch, batch_idx)

    with pytest.raises(ValueError, match="of the user"):
        fit(with_ranges(backend, tmp_path), tmp_path, Failing())
    assert backend.open == []
    assert "step 5/optimizer/forward" in backend.paths


def test_without_a_tool_there_are_no_ranges_unless_asked_for(tmp_path: Path, backend: NotingNvtx) -> None:
    fit(with_ranges(backend, tmp_path, nvtx=None), tmp_path)
    assert backend.paths == []


@pytest.mark.skipif(torch.version.cuda is not None, reason="this torch has NVTX")
def test_a_torch_without_nvtx_is_reported_once_and_training_goes_on(tmp_path: Path) -> None:
    callback = GpuProfiler(windows=[], reports=["json"], nvtx=True, dirpath=str(tmp_path / "out"))
    with pytest.warns(RuntimeWarning) as reported:
        fit(callback, tmp_path)
    assert len([w for w in reported if "nvtx: switched off" in str(w.message)]) == 1
    assert callback.report.steps.count == 24
