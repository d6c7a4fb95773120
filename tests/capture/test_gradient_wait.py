"""The rest of a backward begins before what DDP and FSDP do at its end, and no failure of ours is training's."""

from contextlib import AbstractContextManager, nullcontext

import pytest
import torch
from torch._dynamo import compiled_autograd

from lightning_gpuprof.capture.fence import Fence
from lightning_gpuprof.capture.gradient_wait import GradientWait


def ignored(part: str, message: str) -> None:
    del part, message


class Marks:
    """Calls in their order."""

    def __init__(self) -> None:
        self.seen: list[str] = []

    def rest(self) -> AbstractContextManager[None]:
        self.seen.append("rest")
        return nullcontext()

    def reducing(self, weight: torch.Tensor) -> None:
        """As DDP and FSDP: asked for by a gradient, called when the backward has nothing left to do."""
        engine = torch.autograd.Variable._execution_engine  # type: ignore[attr-defined]
        weight.register_hook(lambda _: engine.queue_callback(lambda: self.seen.append("reduced")))


@pytest.mark.parametrize("backwards", [1, 3])
def test_the_rest_begins_after_the_gradients_and_before_they_are_reduced(backwards: int) -> None:
    marks, weight = Marks(), torch.ones(3, requires_grad=True)
    marks.reducing(weight)
    weight.register_hook(lambda _: marks.seen.append("gradient"))  # type: ignore[no-untyped-call]
    waits = GradientWait(marks.rest, Fence(ignored))
    for _ in range(backwards):
        loss = (weight * 2).sum()
        waits.begins(loss)
        loss.backward()
    assert marks.seen == ["gradient", "rest", "reduced"] * backwards


def test_a_failure_ends_our_part_and_not_the_backward() -> None:
    def fails() -> AbstractContextManager[None]:
        raise OSError("planted")

    weight = torch.ones(3, requires_grad=True)
    fence = Fence(ignored)
    waits = GradientWait(fails, fence)
    loss = (weight * 2).sum()
    waits.begins(loss)
    with pytest.warns(RuntimeWarning, match="wait for gradients"):
        loss.backward()
    assert weight.grad is not None
    again = (weight * 2).sum()
    waits.begins(again)
    assert not again._backward_hooks


def test_a_loss_that_is_differentiated_again_has_no_hook_of_ours() -> None:
    marks, weight = Marks(), torch.ones(3, requires_grad=True)
    waits = GradientWait(marks.rest, Fence(ignored))
    loss = (weight * weight).sum()
    waits.begins(loss)
    loss.backward(retain_graph=True)
    torch.autograd.grad(loss, weight)
    assert marks.seen == ["rest"]
    assert not loss._backward_hooks


def test_a_backward_that_is_compiled_is_left_alone() -> None:
    weight = torch.ones(3, requires_grad=True)
    loss = (weight * 2).sum()
    enable = getattr(compiled_autograd, "_enable", None) or compiled_autograd.enable  # torch 2.4 has the latter
    with enable(lambda graph: graph):
        GradientWait(nullcontext, Fence(ignored)).begins(loss)
    assert not loss._backward_hooks


def test_a_loss_without_a_backward_is_left_alone() -> None:
    waits = GradientWait(nullcontext, Fence(ignored))
    waits.begins(torch.ones(()))
