"""Marks Lightning's actions as NVTX ranges, which Nsight Systems and Nsight Compute show and filter by.

A range is an action, not an exclusive share of time: Lightning runs forward and backward inside its optimizer step, so
that ``optimizer`` encloses them there. Manual optimization has no action around its backward pass and thus no range.
"""

from __future__ import annotations

import functools
import importlib
import re
from collections.abc import Callable, Mapping
from dataclasses import KW_ONLY, dataclass, field
from typing import Any, get_args

import torch

from lightning_gpuprof.capture.actions import ANNOTATED, RUN_EPOCH, classify
from lightning_gpuprof.capture.nsight import active_tool
from lightning_gpuprof.capture.step_clock import Context
from lightning_gpuprof.model.phases import Region

_PLACES = {"evaluation loop": "validation", "broadcast_sigterm": "sync", "self.log": "logging"}
"""Places that Lightning does not name, and which the tap times under a name of its own."""

START_STOP = "timed "
"""What the tap puts before the name of an action that is started and stopped beside the user's own profiler."""


class TorchNvtx:
    """Nested ranges of the calling thread, by torch; a build without CUDA raises ``RuntimeError`` at the first one.

    torch's ranges have no colour: those with one are made by the package ``nvtx``, in the domain of torch's ranges, so
    that they nest and end alike.
    """

    def push(self, name: str, color: int | None = None) -> None:
        """Begin a range inside the one that is open.

        Args:
            name: What is shown.
            color: As the package ``nvtx`` takes it; None for none.
        """
        if color is None:
            torch.cuda.nvtx.range_push(name)  # type: ignore[no-untyped-call]
        else:
            nvtx: Any = importlib.import_module("nvtx")
            nvtx.push_range(name, color)

    def pop(self) -> object:
        """End the innermost range."""
        return torch.cuda.nvtx.range_pop()  # type: ignore[no-untyped-call]


_RGB = re.compile(r"#[0-9a-fA-F]{6}")


@functools.lru_cache
def _number_of(color: str) -> int | None:
    """A colour as the package ``nvtx`` takes it; None if that is not installed or off, or does not know the colour."""
    try:
        nvtx: Any = importlib.import_module("nvtx")
        if not nvtx.enabled():  # it would make no range, and torch's end would be that of another one
            return None
        colors: Any = importlib.import_module("nvtx.colors")
        text = color.strip().lower()
        return int(text[1:], 16) if _RGB.fullmatch(text) else int(colors.color_to_hex(text))
    except Exception:  # what it raises of an unknown name depends on what else is installed
        return None


def is_enabled(option: bool | None, environ: Mapping[str, str]) -> bool:
    """Whether ranges are made: as asked for, and if nothing was asked for, under one of the tools that show them.

    Args:
        option: What the user asked for; None leaves it to us.
        environ: Environment variables of the process.
    """
    return active_tool(environ) is not None if option is None else option


def range_name(action: str, *, manual: bool, overridden: frozenset[str]) -> str | None:
    """Name of the range around an action; the phases of a validation lie inside a range of their own.

    Args:
        action: As Lightning names it.
        manual: Whether optimization is manual.
        overridden: Hooks in which something happens.

    Returns:
        A phase's name as in the reports, both names for a callback's hook: ``ModelCheckpoint.on_train_batch_end``; None
        for an action that gets none.
    """
    if action == RUN_EPOCH:
        return action
    if action.startswith(ANNOTATED):
        return action.removeprefix(ANNOTATED)
    if action in _PLACES:
        return _PLACES[action]
    how = classify(action, manual=manual, overridden=overridden)
    if how.phase is None:
        return None
    if how.callback:
        return f"{how.callback.split('{', 1)[0]}.{how.hook}"
    return how.phase


class NvtxRange:
    """A context inside a range.

    Args:
        context: What is wrapped; entered after the range has begun, left before it ends.
        name: Name of the range.
        backend: Makes it. Must not raise.
        color: As the package ``nvtx`` takes it; None for none.
    """

    def __init__(self, context: Context, name: str, backend: NvtxRanges, color: int | None = None) -> None:
        self._context = context
        self._name = name
        self._color = color
        self._push = backend.push
        self._pop = backend.pop

    def __enter__(self) -> object:
        self._push(self._name, self._color)
        return self._context.__enter__()

    def __exit__(self, *exc: object) -> bool | None:
        try:
            return self._context.__exit__(*exc)  # type: ignore[arg-type]
        finally:
            self._pop()


@dataclass(eq=False, repr=False)
class NvtxRanges:
    """Ranges around steps and their actions. No method raises; all belong to the main thread."""

    backend: TorchNvtx
    _: KW_ONLY
    manual: bool
    """Manual optimization is in use."""
    overridden: frozenset[str]
    """Per-batch hooks that the LightningModule or DataModule overrides."""
    wrap_actions: Callable[[Region, Callable[[str, Context], Context]], object]
    """Puts a wrapper around the contexts of a region's actions that are known by now."""
    colors: Mapping[str, str] = field(default_factory=dict)
    """Of the user's regions that have one, by name."""
    on_failure: Callable[[Exception], None]
    """Called once when the backend fails; no ranges are made from then on."""

    def __post_init__(self) -> None:
        self._off = False
        self._in_step = False
        self._steps = 0

    def wrap(self, action: str, context: Context) -> Context:
        """The context to use for an action.

        Args:
            action: As Lightning names it.
            context: The context that times it.

        Returns:
            A range around the given one; that itself if the action gets none or is in one already, or if ranges are
            switched off.
        """
        if self._off or isinstance(context, NvtxRange):
            return context
        name = range_name(action.removeprefix(START_STOP), manual=self.manual, overridden=self.overridden)
        if name is None:
            return context
        color = self.colors.get(name) if action.startswith(ANNOTATED) else None
        return NvtxRange(context, name, self, None if color is None else _number_of(color))

    def begin_step(self, batch: int) -> None:
        """The range of the step before ends and that of this batch begins."""
        self.end_step()
        # Actions become known as they happen; looking for new ones in each step would cost more than the ranges.
        if self._steps & (self._steps - 1) == 0:
            for region in get_args(Region):
                self.wrap_actions(region, self.wrap)
        self._steps += 1
        self.push(f"step {batch}")
        self._in_step = True

    def end_step(self) -> None:
        """The range of a step that no other follows at once ends."""
        if self._in_step:
            self._in_step = False
            self.pop()

    def push(self, name: str, color: int | None = None) -> None:
        """Begin a range.

        Args:
            name: What is shown.
            color: As the package ``nvtx`` takes it; None for none.
        """
        try:
            if not self._off:
                self.backend.push(name, color)
        except Exception as error:
            self._switch_off(error)

    def pop(self) -> None:
        """End the innermost range."""
        try:
            if not self._off:
                self.backend.pop()
        except Exception as error:
            self._switch_off(error)

    def _switch_off(self, error: Exception) -> None:
        self._off = True
        self.on_failure(error)
