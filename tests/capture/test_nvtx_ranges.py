"""NVTX ranges with a backend that writes down the nesting; real Lightning action names."""

from __future__ import annotations

from contextlib import nullcontext

import pytest
import torch
from noting_nvtx import NotingNvtx

from lightning_gpuprof.capture.nvtx_ranges import NvtxRange, NvtxRanges, TorchNvtx, range_name
from lightning_gpuprof.capture.step_clock import StepClock
from lightning_gpuprof.model.phases import Region


def wrap_nothing(region: Region, wrap: object) -> None:
    """There is no tap."""


def make(backend: NotingNvtx, failures: list[Exception] | None = None) -> NvtxRanges:
    told = failures if failures is not None else []
    return NvtxRanges(backend, manual=False, overridden=frozenset(), wrap_actions=wrap_nothing, on_failure=told.append)


@pytest.mark.parametrize(
    ("action", "region", "name"),
    [
        ("[_TrainingEpochLoop].train_dataloader_next", "main", "data_wait"),
        ("[Strategy]SingleDeviceStrategy.batch_to_device", "main", "h2d"),
        ("[Strategy]SingleDeviceStrategy.training_step", "main", "forward"),
        ("[Strategy]SingleDeviceStrategy.backward", "main", "backward"),
        ("[LightningModule]Model.optimizer_step", "main", "optimizer"),
        ("[LightningModule]Model.optimizer_zero_grad", "main", "zero_grad"),
        ("[LightningModule]Model.configure_gradient_clipping", "main", None),  # nothing is clipped
        ("[Callback]EMA{'decay': 0.9}.on_train_batch_end", "main", "EMA.on_train_batch_end"),
        ("[LightningModule]Model.on_train_batch_start", "main", None),  # not overridden: nothing in it
        ("run_training_batch", "main", None),
        ("run_training_epoch", "main", "run_training_epoch"),
        ("save_checkpoint", "main", "checkpoint"),
        ("evaluation loop", "main", "validation"),
        ("broadcast_sigterm", "main", "sync"),
        ("self.log", "main", "logging"),
        ("[Strategy]SingleDeviceStrategy.validation_step", "validation", "forward"),
        ("[_EvaluationLoop].val_next", "validation", "data_wait"),
        ("[Callback]EMA.on_validation_start", "validation", "EMA.on_validation_start"),
    ],
)
def test_ranges_are_named_like_the_phases_of_the_reports(action: str, region: Region, name: str | None) -> None:
    assert range_name(action, region, manual=False, overridden=frozenset()) == name


def test_ranges_nest_as_the_actions_do_and_steps_follow_each_other() -> None:
    backend = NotingNvtx()
    ranges = make(backend)
    optimizer = ranges.wrap("[LightningModule]M.optimizer_step", "main", nullcontext())
    forward = ranges.wrap("[Strategy]S.training_step", "main", nullcontext())
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


def test_a_range_may_be_nested_in_itself() -> None:
    backend = NotingNvtx()
    forward = make(backend).wrap("[Strategy]S.training_step", "main", nullcontext())
    with forward, forward:
        assert backend.open == ["forward", "forward"]
    assert backend.open == []


def test_an_exception_passes_through_and_closes_the_range() -> None:
    backend = NotingNvtx()
    forward = make(backend).wrap("[Strategy]S.training_step", "main", nullcontext())
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
    assert ranges.wrap("run_training_batch", "main", context) is context
    once = ranges.wrap("[Strategy]S.training_step", "main", context)
    assert ranges.wrap("[Strategy]S.training_step", "main", once) is once


def test_a_backend_that_fails_is_told_once_and_the_actions_go_on() -> None:
    failures: list[Exception] = []
    ranges = make(NotingNvtx(broken=True), failures)
    forward = ranges.wrap("[Strategy]S.training_step", "main", nullcontext())
    ran = 0
    for batch in range(3):
        ranges.begin_step(batch)
        with forward:
            ran += 1
    ranges.end_step()
    assert ran == 3
    assert [str(error) for error in failures] == ["NVTX functions not installed"]
    context = nullcontext()
    assert ranges.wrap("[Strategy]S.training_step", "main", context) is context


@pytest.mark.skipif(torch.version.cuda is not None, reason="this torch has NVTX")
def test_a_torch_without_nvtx_switches_ranges_off() -> None:
    failures: list[Exception] = []
    ranges = NvtxRanges(
        TorchNvtx(), manual=False, overridden=frozenset(), wrap_actions=wrap_nothing, on_failure=failures.append
    )
    with ranges.wrap("[Strategy]S.training_step", "main", nullcontext()):
        pass
    assert [type(error) for error in failures] == [RuntimeError]


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device here")
def test_real_ranges_are_pushed_and_popped() -> None:
    depth = torch.cuda.nvtx.range_push("outside")
    failures: list[Exception] = []
    ranges = NvtxRanges(
        TorchNvtx(), manual=False, overridden=frozenset(), wrap_actions=wrap_nothing, on_failure=failures.append
    )
    ranges.begin_step(0)
    with ranges.wrap("[Strategy]S.training_step", "main", nullcontext()):
        pass
    ranges.end_step()
    assert torch.cuda.nvtx.range_pop() == depth
    assert failures == []
