"""What ends at the fence, and what goes through it."""

import re
import signal
import time
from pathlib import Path

import pytest
from python_process import run_python

from lightning_gpuprof.capture.fence import Fence, suppress_exceptions
from lightning_gpuprof.model.numbers import round_number

DIED = "DataLoader worker (pid 4242) is killed by signal: Killed. "


def test_a_worker_that_dies_while_an_error_is_suppressed_ends_the_run() -> None:
    class InterruptedLookError(RuntimeError):
        """Torch's handler of SIGCHLD raises while the fence looks at it."""

        def __str__(self) -> str:
            raise RuntimeError(DIED)

    with pytest.raises(RuntimeError, match="DataLoader worker"), suppress_exceptions():
        raise InterruptedLookError
    with suppress_exceptions():
        raise RuntimeError("of ours")


@pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="a system without timers")
def test_a_time_limit_of_the_user_that_strikes_in_our_code_ends_the_run() -> None:
    class Limit:
        def strike(self, number: int, frame: object) -> None:
            raise TimeoutError("the limit of the user")

    before = signal.signal(signal.SIGALRM, Limit().strike)
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.05)
        with pytest.raises(TimeoutError, match="of the user"), suppress_exceptions():
            time.sleep(20)
        with suppress_exceptions():
            raise TimeoutError("of a disk")
    finally:
        signal.signal(signal.SIGALRM, before)


def test_a_failure_of_ours_ends_at_the_fence_and_is_reported_once() -> None:
    reported: list[tuple[str, str]] = []
    fence = Fence(lambda part, message: reported.append((part, message)))

    def breaks() -> None:
        with fence.around("traces"):
            raise RuntimeError("broken")

    with pytest.warns(RuntimeWarning, match="gpuprof: traces: switched off after RuntimeError: broken"):
        breaks()
    breaks()
    assert reported == [("traces", "switched off after RuntimeError: broken")]


def test_a_failure_in_our_own_code_names_its_line() -> None:
    reported: list[str] = []
    fence = Fence(lambda part, message: reported.append(message))
    with pytest.warns(RuntimeWarning), fence.around("report"):
        round_number("46")  # type: ignore[arg-type]
    (message,) = reported
    assert re.search(r"switched off after TypeError: .* \(model/numbers\.py:\d+\)$", message)


@pytest.mark.parametrize("error", [RuntimeError(DIED), KeyboardInterrupt(), SystemExit(3)])
def test_what_ends_the_run_without_us_ends_it_with_us(error: BaseException) -> None:
    fence = Fence(lambda part, message: None)
    with pytest.raises(type(error)), fence.around("traces"):
        raise error
    assert not fence.failed("traces")


_SCRIPT = """
import os, signal, sys, time
import lightning.pytorch as pl
import torch
from torch.utils.data import DataLoader
from lightning_gpuprof import GpuProfiler

class Model(pl.LightningModule):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(4, 1)
    def training_step(self, batch, index):
        return self.layer(batch).sum()
    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), 0.1)

class Unlucky(GpuProfiler):
    # its own work at the end of the steps is where the death of the worker strikes
    def _session_of(self, trainer):
        session = super()._session_of(trainer)
        if session is not None:
            session.steps_end = self.wait
        return session

    def wait(self):
        os.kill(loader._iterator._workers[0].pid, signal.SIGKILL)
        time.sleep(60)  # torch's handler raises here

profiler = Unlucky(windows=[], nvml=False, reports=["json"], dirpath=sys.argv[1])
loader = DataLoader(torch.ones(20, 4), batch_size=2, num_workers=1, persistent_workers=True)
pl.Trainer(max_epochs=1, accelerator="cpu", callbacks=[profiler], logger=False, enable_checkpointing=False,
           enable_progress_bar=False).fit(Model(), loader)
print("ended well")
"""


@pytest.mark.slow
def test_a_worker_that_dies_while_we_are_at_work_ends_the_run(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text(_SCRIPT)
    done = run_python(script, tmp_path / "run", code=1)
    assert "is killed by signal: Killed" in done.stderr
    assert "ended well" not in done.stdout
