"""One line about the last steps, for whoever watches the terminal."""

import shutil
import sys
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from lightning_gpuprof.capture.fence import warn
from lightning_gpuprof.capture.live_scalars import STALE_NS, step_scalars
from lightning_gpuprof.capture.recorder import Reading, Sampler
from lightning_gpuprof.capture.step_clock import ClosedStep
from lightning_gpuprof.model import numbers
from lightning_gpuprof.model.journal import PROFILED, Sample, Slot
from lightning_gpuprof.model.phases import PHASES, Phase, words_of

NAME = "live line"
EVERY_S = 0.5
ABOVE_BAR_EVERY_S = 10.0
"""A line above a progress bar stays and scrolls: it comes less often."""
RECENT_NS = 10_000_000_000
MAX_RECENT_STEPS = 256
"""The line is about the steps of the last ten seconds, at most so many."""
QUIET_NS = 2_000_000_000
QUIET_PERIODS = 3
"""A step that has taken so long, and so many periods, is reported while it goes on."""


class Line(Protocol):
    """A line that is written over."""

    def show(self, text: str) -> None:
        """Write over what is there."""

    def clear(self) -> None:
        """Leave nothing of it."""


@dataclass(eq=False, repr=False)
class LiveLine(Sampler):
    """A sampler that reads nothing and shows what the steps took, in the sampler's own thread."""

    line: Line
    """To be written over, where no progress bar is."""
    above_bar: Callable[[str], None] | None
    """Prints a line above the progress bar; None where there is none."""
    slots: Sequence[Slot]
    """The clock's."""
    samples_per_step: int | None
    """Samples per step over all ranks, if known."""
    now: Callable[[], int] = time.perf_counter_ns
    """The run's clock in ns."""

    name = NAME

    def __post_init__(self) -> None:
        self.interval_s = EVERY_S
        self._apart_s = EVERY_S if self.above_bar is None else ABOVE_BAR_EVERY_S
        self._recent: deque[ClosedStep] = deque(maxlen=MAX_RECENT_STEPS)
        self._gpu: Sample | None = None
        self._shown_ns: int | None = None
        self._over = False

    def watch(self, steps: Sequence[ClosedStep]) -> None:
        """Take steps that have ended; on any thread but the training's."""
        self._recent.extend(steps)

    def take(self, sample: Sample) -> None:
        """A reading of any sampler; on any thread. The newest of this rank's GPU counts."""
        if (sample.source, sample.subject) == ("nvml", "gpu0") and _gpu_words(sample):
            self._gpu = sample

    def end(self) -> None:
        """The last step is over: the line goes, because others write now."""
        self._over = True

    def sample(self, t_ns: int) -> Sequence[Reading]:
        """Write the line again, unless that was done just before: a thread that was late looks again soon."""
        if self._over:
            self.close()
        elif self._shown_ns is None or t_ns - self._shown_ns >= self._apart_s * 1e9:
            gpu = self._gpu if self._gpu is not None and t_ns - self._gpu.t_ns < STALE_NS else None
            text = live_text(tuple(self._recent), self.slots, self.samples_per_step, gpu, now_ns=self.now())
            if text and not self._over:
                self._shown_ns = t_ns
                (self.line.show if self.above_bar is None else self.above_bar)(text)
        return ()

    def close(self) -> Sequence[Reading]:
        """Leave nothing of the line."""
        if self.above_bar is None:
            self.line.clear()
        return ()


def live_line_for(
    trainer: Any, line: Line | None, slots: Sequence[Slot], samples_per_step: int | None
) -> LiveLine | None:
    """The live line of a stage, above the trainer's progress bar if it has one.

    Args:
        trainer: With its callbacks.
        line: Where it is written if there is no bar; None for no live line.
        slots: The clock's.
        samples_per_step: Samples per step over all ranks, if known.

    Returns:
        None if none is wanted, or if it would tear the trainer's bar, which is warned of.
    """
    if line is None:
        return None
    try:
        above = _above_bar(trainer)
    except _UnknownBarError as error:
        warn(f"gpuprof: no live line: it would tear {error}, and only the bars of tqdm and rich make room")
        return None
    return LiveLine(line, above, slots, samples_per_step)


def live_text(
    steps: Sequence[ClosedStep],
    slots: Sequence[Slot],
    samples_per_step: int | None,
    gpu: Sample | None = None,
    *,
    now_ns: int,
) -> str:
    """The line: step, step time, throughput, the largest phase, the share of waiting for data, and the GPU.

    Args:
        steps: That ended lately, the newest last.
        slots: The clock's.
        samples_per_step: Samples per step over all ranks, if known.
        gpu: The newest reading of this rank's GPU, if there is one.
        now_ns: The run's clock.

    Returns:
        ASCII; empty without steps.
    """
    if not steps:
        return ""
    newest = steps[-1]
    lately = [step for step in steps if step.end_ns > newest.end_ns - RECENT_NS]
    means = step_scalars(lately, slots, samples_per_step, verbose=True)
    parts = [f"step {newest.batch}{' (traced)' if newest.flags & PROFILED else ''}"]
    if means:
        period_ms = means["gpuprof/step_ms"]
        parts.append(f"{_three_digits(period_ms)} ms")
        if "gpuprof/samples_per_s" in means:
            parts.append(f"{_three_digits(means['gpuprof/samples_per_s'])} samples/s")
        shares = {phase: means.get(f"gpuprof/{phase}_ms", 0.0) / period_ms for phase in PHASES} if period_ms else {}
        parts += _phases(shares)
        silent_ns = now_ns - newest.end_ns
        if silent_ns > max(QUIET_NS, QUIET_PERIODS * period_ms * 1e6):
            parts[0] += f", none since {silent_ns / 1e9:.0f} s"
    if gpu is not None:
        parts.append(f"{gpu.subject}: {_gpu_words(gpu)}")
    return "gpuprof: " + " | ".join(parts)


def _gpu_words(sample: Sample) -> str:
    busy, used = sample.values.get("utilization_ratio"), sample.values.get("memory_used_bytes")
    words = ["" if busy is None else f"{busy:.0%} utilization", "" if used is None else f"{numbers.size(used)} used"]
    return ", ".join(filter(None, words))


def _phases(shares: Mapping[Phase, float]) -> list[str]:
    """The largest phase and the wait for data; the next phase where that is the largest itself."""
    if not shares:
        return []
    first, second, *_ = sorted(shares, key=lambda phase: -shares[phase])
    other: Phase = second if first == "data_wait" else "data_wait"
    return [f"largest: {words_of(first)} {shares[first]:.0%}", f"{words_of(other)} {shares[other]:.0%}"]


def _three_digits(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


class _UnknownBarError(Exception):
    """A bar that cannot be asked to make room; the text names it."""


def _above_bar(trainer: Any) -> Callable[[str], None] | None:
    """What prints a line above the trainer's progress bar; None if no bar is drawn on the terminal.

    Lightning's bars are asked in the way that each has for it, tried with those of Lightning 2.6 on tqdm 4 and rich 13
    to 14: both let other threads print. A bar of another kind raises.
    """
    bar = getattr(trainer, "progress_bar_callback", None)
    if bar is None or not getattr(bar, "is_enabled", True) or not _is_terminal(sys.stdout):
        return None
    if hasattr(type(bar), "train_progress_bar"):
        return _above_tqdm
    if hasattr(bar, "progress"):
        return lambda text: _above_rich(bar, text)
    raise _UnknownBarError(type(bar).__name__)


def _above_tqdm(text: str) -> None:
    tqdm: Any = sys.modules["tqdm"]  # Lightning's bar has imported it
    tqdm.tqdm.write(text[: shutil.get_terminal_size().columns - 1], file=sys.stderr)


def _above_rich(bar: Any, text: str) -> None:
    progress = bar.progress
    if progress is None or not progress.live.is_started:
        print(text, file=sys.stderr, flush=True)
    else:
        progress.console.print(text, markup=False, highlight=False, no_wrap=True, overflow="crop")


def _is_terminal(stream: Any) -> bool:
    try:
        return stream is not None and bool(stream.isatty())
    except (ValueError, AttributeError):  # closed; or the user's own, which does not say
        return False
