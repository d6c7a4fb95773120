"""Lightning's progress bars: lines of ours go above them, in the way each of them has for that.

Tried with the bars of Lightning 2.6 on tqdm 4 and rich 13 to 14: both let other threads print.
"""

from __future__ import annotations

import shutil
import sys
from collections.abc import Callable
from typing import Any


class UnknownBarError(Exception):
    """A bar that cannot be asked to make room; the text names it."""


def above_bar(trainer: Any) -> Callable[[str], None] | None:
    """What prints a line above the trainer's progress bar; None if no bar is drawn on the terminal.

    Args:
        trainer: With its callbacks.

    Raises:
        UnknownBarError: A bar of another kind is drawn.
    """
    bar = getattr(trainer, "progress_bar_callback", None)
    if bar is None or not getattr(bar, "is_enabled", True) or not _is_terminal(sys.stdout):
        return None
    if hasattr(type(bar), "train_progress_bar"):
        return _above_tqdm
    if hasattr(bar, "progress"):
        return lambda text: _above_rich(bar, text)
    raise UnknownBarError(type(bar).__name__)


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
    except ValueError:  # closed
        return False
