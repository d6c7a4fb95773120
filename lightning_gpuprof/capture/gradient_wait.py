"""Reports to the clock when a rank's own backward is over: what follows until its end is the wait for other ranks.

Ranks meet where DDP and FSDP finish their reductions, in functions that they have autograd call at the end of the
backward, in the order in which they asked. Ours asks first, when the backward begins.
"""

import sys
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

import torch
from torch.utils.hooks import RemovableHandle

from lightning_gpuprof.capture.fence import Fence

_PART = "wait for gradients"


class GradientWait:
    """Sees one backward after the other; on the CPU, where the main thread runs it and waits in it.

    Args:
        rest: Gives the context whose beginning charges the rest of the backward.
        fence: Takes failures; nothing is separated after one.
    """

    def __init__(self, rest: Callable[[], AbstractContextManager[object]], fence: Fence) -> None:
        self._rest = rest
        self._fence = fence
        # Private, as DDP and FSDP take it; without it nothing is separated.
        engine: Any = getattr(torch.autograd.Variable, "_execution_engine", None)
        self._call_at_end: Callable[[Callable[[], None]], None] | None = getattr(engine, "queue_callback", None)

    def begins(self, loss: torch.Tensor) -> None:
        """The backward of this loss is about to run; nothing of the loss is kept."""
        if self._call_at_end is None or loss.grad_fn is None or self._fence.failed(_PART) or _is_compiled():
            return
        handle: RemovableHandle = loss.register_hook(lambda _: self._runs(handle))  # type: ignore[no-untyped-call]

    def _runs(self, handle: RemovableHandle) -> None:
        with self._fence.around(_PART):
            handle.remove()  # the loss may be differentiated once more, outside of a backward of Lightning's
            if self._call_at_end is not None:
                self._call_at_end(self._own_part_ends)

    def _own_part_ends(self) -> None:
        with self._fence.around(_PART):
            self._rest().__enter__()


def _is_compiled() -> bool:
    """Whether backwards are compiled, with all hooks: ours would break the graph, an error if it has to be whole.

    As in torch 2.4 to 2.13.
    """
    return bool(getattr(sys.modules.get("torch._dynamo.compiled_autograd"), "compiled_autograd_enabled", False))
