"""The progress bar reads a value from the GPU in every step, and the GPU then idles.

## What it means
`self.log(..., prog_bar=True)` hands a tensor to the progress bar, which needs its value whenever it is drawn: with
`refresh_rate=1`, the default, in every step. The host waits until the GPU is done.

## How it is measured
As `sync-points`, for waits inside of the hooks of a progress bar. The advised refresh rate brings their cost below 1 %
of the step; the gain is the rest.

## When it is wrong
- If another place waits in every step, too, the wait moves there: see `sync-points`.
- A bar whose class has no "ProgressBar" in its name counts as a callback's code, under `sync-points`.

## What to do
Draw less often, or log without `prog_bar=True`.
"""

import math
import re

from lightning_gpuprof.rules.base import Change, Metrics, claims, percent, threshold
from lightning_gpuprof.rules.examples import fires, looks_alike, quiet
from lightning_gpuprof.rules.transfers.wait_rule import UNTRACED, HostWaits, WaitRule, idle_words, times


def _bar(us: float, name: str = "TQDMProgressBar") -> dict[str, object]:
    """Steps of an example: 10 ms of kernels, after which a callback reads a value and takes a while."""
    return {"kernels": 100, "reads": {name: us}}


class ProgressBarSync(WaitRule):
    id = "progress-bar-sync"
    title = "The progress bar waits for the GPU"
    specialises = ("callback-slow",)
    cause = "progress bar"
    explains = claims.WAITS_OF_THE_PROGRESS_BAR

    least_per_step: float = threshold(0.5, source="heuristic: of every second step")
    least_ratio: float = threshold(0.05, source="heuristic, as for sync-points")
    target_ratio: float = threshold(0.01, source="heuristic: what is left of it")

    examples = (
        fires("the bar takes 2 ms", "warning", "TQDMProgressBar(..., refresh_rate=14)", saves_ms=1.5, step=_bar(2000)),
        fires("the bar is Rich's", "warning", "RichProgressBar(..., refresh", step=_bar(2000, "RichProgressBar")),
        fires("the bar takes 0.8 ms", "info", "once per step", step=_bar(800)),
        quiet("the bar takes 0.5 ms", step=_bar(500)),
        looks_alike("another callback takes 2 ms", step=_bar(2000, "Watch")),
        *UNTRACED,
    )

    def summary(self, found: HostWaits) -> str:
        often = f"The progress bar reads a value from the GPU {times(found.per_step)} per step"
        return f"{often}. The host waits for it, and {idle_words(found)}"

    def advice(self, metrics: Metrics, found: HostWaits) -> str:
        rate, left = self.change(metrics, found).added[0], percent(found.ratio / self._every(found))
        return (
            f"Draw the progress bar less often: {rate}, or log without prog_bar=True. It then costs {left} of the step."
        )

    def change(self, metrics: Metrics, found: HostWaits) -> Change:
        named = re.match(r"(TQDM|Rich)ProgressBar\b", found.worst.where)
        return Change(call=named[0] if named else "TQDMProgressBar", arguments={"refresh_rate": self._every(found)})

    def saved_ratio(self, found: HostWaits) -> float:
        return 1 - 1 / self._every(found)

    def _every(self, found: HostWaits) -> int:
        return max(10, math.ceil(found.ratio / self.target_ratio))
