"""A training whose lines take known shares of its step; prints them and its median step time as JSON.

Run as ``python lines_program.py bare|gpuprof STEPS``.
"""

import json
import statistics
import sys
import tempfile
import time

import lightning.pytorch as pl
import torch

WORK = (90, 70, 55, 45, 36, 30, 24, 18, 14, 10, 6, 3)
"""Thousands of numbers that each line adds up."""


def line_0() -> int:
    return sum(range(WORK[0] * 1000))


def line_1() -> int:
    return sum(range(WORK[1] * 1000))


def line_2() -> int:
    return max(range(WORK[2] * 1000))


def line_3() -> int:
    return len([number for number in range(WORK[3] * 1000)])  # noqa: C416


def line_4() -> int:
    return sum(range(WORK[4] * 1000))


def line_5() -> int:
    return len({number: 0 for number in range(WORK[5] * 1000)})  # noqa: C420


def line_6() -> int:
    return max(range(WORK[6] * 1000))


def line_7() -> str:
    return ",".join(map(str, range(WORK[7] * 1000)))


def line_8() -> int:
    return sum(range(WORK[8] * 1000))


def line_9() -> list[int]:
    return sorted(range(WORK[9] * 1000), reverse=True)


def line_10() -> int:
    return max(range(WORK[10] * 1000))


def line_11() -> int:
    return sum(range(WORK[11] * 1000))


LINES = [globals()[f"line_{number}"] for number in range(len(WORK))]


class Net(pl.LightningModule):
    """Runs each line once a step and times it."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(4, 1)
        self.seconds = [0.0] * len(LINES)
        self.periods_s: list[float] = []
        self.before_s = 0.0

    def training_step(self, batch: torch.Tensor, batch_idx: int) -> torch.Tensor:
        """Each line, then a loss."""
        for number, line in enumerate(LINES):
            begin_s = time.perf_counter()
            line()
            self.seconds[number] += time.perf_counter() - begin_s
        now_s = time.perf_counter()
        if batch_idx:
            self.periods_s.append(now_s - self.before_s)
        self.before_s = now_s
        return self.layer(batch).sum()

    def configure_optimizers(self) -> torch.optim.Optimizer:
        """SGD."""
        return torch.optim.SGD(self.parameters(), 1e-3)


def main(mode: str, steps: int) -> None:
    """Train and print."""
    torch.set_num_threads(1)
    net = Net()
    callbacks: list[pl.Callback] = []
    if mode == "gpuprof":
        from lightning_gpuprof import GpuProfiler

        callbacks.append(GpuProfiler(windows=[], reports=[], dirpath=tempfile.mkdtemp()))
    trainer = pl.Trainer(
        max_epochs=1,
        limit_train_batches=steps,
        accelerator="cpu",
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        callbacks=callbacks,
    )
    trainer.fit(net, torch.utils.data.DataLoader(torch.ones(steps, 4)))
    found: dict[str, float] = {}
    if callbacks:
        for row in callbacks[0].report.lines:
            place = row.place.rpartition(" ")[0].rpartition(":")[2]
            found[place] = found.get(place, 0.0) + row.share
    total_s = sum(net.periods_s)
    truth = {str(line.__code__.co_firstlineno + 1): s / total_s for line, s in zip(LINES, net.seconds, strict=True)}
    print("RESULT " + json.dumps({"truth": truth, "found": found, "step_s": statistics.median(net.periods_s)}))


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
