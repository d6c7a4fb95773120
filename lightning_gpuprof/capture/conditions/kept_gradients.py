"""Whether clearing the gradients leaves them there, filled with zeros: looked at once, in an early step."""

from collections.abc import Callable, Iterable
from typing import Any

from lightning_gpuprof.capture.fence import suppress_exceptions
from lightning_gpuprof.capture.memory.backend import is_lazy
from lightning_gpuprof.capture.step_clock import Context
from lightning_gpuprof.model.journal import Value

CLEARED_TIMES = 4
"""The call after which to look: before the first there are no gradients."""


class KeptGradients:
    """Looks at the gradients once, and is gone from then on.

    Args:
        optimizers: Those of the trainer.
        found: Called with ``model.gradients_kept``: how many of their parameters still have a gradient.
    """

    def __init__(
        self,
        optimizers: Callable[[], Iterable[Any]],
        found: Callable[[dict[str, Value]], None],
    ) -> None:
        self._optimizers = optimizers
        self._found = found
        self._left = CLEARED_TIMES
        self._leave: Callable[[], None] | None = None

    def watch(self, wrap_action: Callable[[Callable[[Context], Context]], Callable[[], None]]) -> None:
        """Begin.

        Args:
            wrap_action: Puts a wrapper around the contexts of the action that clears the gradients, and returns the way
                back.
        """
        self._leave = wrap_action(lambda context: _Counted(context, self._cleared))

    def _cleared(self, failed: object) -> None:
        with suppress_exceptions():  # a fact less
            if failed is not None:
                return
            self._left -= 1
            if self._left > 0:
                return
            if self._leave is not None:  # again if somebody else's wrapper has brought it back
                self._leave()
            if self._left == 0:
                self._found({"model.gradients_kept": self._count()})

    def _count(self) -> int:
        parameters = {
            id(one): one
            for optimizer in self._optimizers()
            for group in optimizer.param_groups
            for one in group["params"]
        }
        return sum(1 for one in parameters.values() if not is_lazy(one) and one.is_leaf and one.grad is not None)


class _Counted:
    """A context that reports its end, with the type of what it was left by."""

    __slots__ = ("_context", "_ended")

    def __init__(self, context: Context, ended: Callable[[object], None]) -> None:
        self._context = context
        self._ended = ended

    def __enter__(self) -> object:
        return self._context.__enter__()

    def __exit__(self, *exc: object) -> bool | None:
        result = self._context.__exit__(*exc)  # type: ignore[arg-type]
        self._ended(exc[0] if exc else None)
        return result
