"""Tells the clock when a rank's own backward is over: what follows until its end is the wait for other ranks.

Ranks meet where DDP and FSDP finish their reductions, in functions that they have autograd call at the end of the
backward, in the order in which they asked. Ours asks first, when the backward begins.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

import torch

from lightning_gpuprof.capture.fence import Fence

_PART = "wait for gradients"


class GradientWait:
    """Sees one backward after the other; on the CPU, where the main thread runs it and waits in it.

    Args:
        rest: Gives the context whose beginning charges the rest of the backward.
        fence: Takes failures; nothing is told apart after one.
    """

    def __init__(self, rest: Callable[[], AbstractContextManager[object]], fence: Fence) -> None:
        self._rest = rest
        self._fence = fence
        # Private, as DDP and FSDP take it; without it nothing is told apart.
        engine: Any = getattr(torch.autograd.Variable, "_execution_engine", None)
        self._call_at_end: Callable[[Callable[[], None]], None] | None = getattr(engine, "queue_callback", None)

    def begins(self, loss: torch.Tensor) -> None:
        """The backward of this loss is about to run.

        Args:
            loss: Nothing of it is kept.
        """
        if self._call_at_end is not None and loss.grad_fn is not None and not self._fence.failed(_PART):
            loss.register_hook(self._runs)  # type: ignore[no-untyped-call]

    def _runs(self, _: torch.Tensor) -> None:
        with self._fence.around(_PART):
            if self._call_at_end is not None:
                self._call_at_end(self._own_is_over)

    def _own_is_over(self) -> None:
        with self._fence.around(_PART):
            self._rest().__enter__()
