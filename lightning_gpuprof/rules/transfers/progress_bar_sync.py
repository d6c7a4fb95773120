"""Finds a progress bar that makes the host wait for the device because it shows a tensor."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass

from lightning_gpuprof.model.metrics import Metrics
from lightning_gpuprof.rules import claims
from lightning_gpuprof.rules.base import threshold
from lightning_gpuprof.rules.transfers.device_waits import CostlyWaits, WaitRule, times
from lightning_gpuprof.rules.wording import percent


@dataclass(frozen=True, kw_only=True)
class ProgressBarSync(WaitRule):
    """The progress bar reads a value from the device in every step, and the device then has nothing to do.

    ## What it means

    `self.log(..., prog_bar=True)` hands a tensor to the progress bar, which needs its value whenever it is drawn: with
    `refresh_rate=1`, the default, in every step. The host waits until the device has done all its work.

    ## How it is measured

    As `sync-points`, for waits inside of the hooks of a progress bar: the idle time of the device that begins during
    the wait, and of that no more than the host was blocked, per step. They have to happen at least every second step
    and to cost 5 % of the period. The proposed refresh rate brings this below 1 %; the gain is the rest.

    ## When it is wrong

    - If another place waits in every step, too, the wait moves there. `sync-points` names such places.
    - A progress bar whose class has no "ProgressBar" in its name counts as code of a callback, under `sync-points`.

    ## What to do

    Draw less often, or log without `prog_bar=True`.

    ## Example

    "Draw the progress bar every 20 steps: Trainer(callbacks=[TQDMProgressBar(refresh_rate=20)])"
    """

    id = "progress-bar-sync"
    specialises = ("callback-slow",)
    cause = "progress bar"
    explains = claims.WAITS_OF_THE_PROGRESS_BAR

    least_per_step: float = threshold(0.5, source="heuristic: of every second step")
    least_ratio: float = threshold(0.05, source="heuristic, as for sync-points")
    target_ratio: float = threshold(0.01, source="heuristic: what is left of it")

    def summary(self, found: CostlyWaits) -> str:
        """How often the bar reads a value."""
        return (
            f"The progress bar reads a value from the device {times(found.per_step)} per step: the host waits, and "
            f"{found.idle_words}"
        )

    def advice(self, metrics: Metrics, found: CostlyWaits) -> str:
        """How often to draw it."""
        every = self._every(found)
        return (
            f"Draw the progress bar every {every} steps: Trainer(callbacks=[{_bar(found.worst.where)}"
            f"(refresh_rate={every})]). Or log without prog_bar=True. That leaves "
            f"{percent(found.cost_ms / found.step.period_ms / every)} of the step."
        )

    def saved_ratio(self, found: CostlyWaits) -> float:
        """All but what is drawn then."""
        return 1 - 1 / self._every(found)

    def _every(self, found: CostlyWaits) -> int:
        return max(10, math.ceil(found.cost_ms / found.step.period_ms / self.target_ratio))


def _bar(where: str) -> str:
    """The class of Lightning's progress bar; of one of the user's own the one with the same argument."""
    found = re.match(r"(TQDM|Rich)ProgressBar\b", where)
    return found[0] if found else "TQDMProgressBar"
