"""Log directories for the tab: folders with reports and journals as runs leave them, and a client for its routes."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

from sample_journals import Ticking, header
from tensorboard.backend.application import TensorBoardWSGI
from werkzeug.test import Client, TestResponse

from lightning_gpuprof.capture.journal_file import open_journal
from lightning_gpuprof.capture.journal_writer import JournalWriter
from lightning_gpuprof.capture.step_clock import StepClock
from lightning_gpuprof.model.journal import Footer
from lightning_gpuprof.tensorboard_plugin.plugin import GpuProfPlugin

BASE = "/data/plugin/gpuprof"


class Tab:
    """The plugin inside of TensorBoard's own application, without a server.

    Args:
        logdir: As TensorBoard is given it.
    """

    def __init__(self, logdir: Path | str) -> None:
        self.plugin = GpuProfPlugin(SimpleNamespace(logdir=str(logdir), flags=None))
        self._client = Client(TensorBoardWSGI([self.plugin]))

    def get(self, route: str, headers: dict[str, str] | None = None, **parameters: Any) -> TestResponse:
        """Ask, and ask again while a report is being made."""
        while True:
            response = self._client.get(f"{BASE}/{route}", query_string=parameters, headers=headers)
            if response.status_code != 202:
                return response

    def raw(self, method: str, path: str) -> TestResponse:
        """Any request."""
        return self._client.open(path, method=method)


def journal_lines(folder: Path, epochs: int, steps: int = 300) -> list[bytes]:
    """The lines of a finished journal with a block of steps for each epoch, as the real writer writes them."""
    path = folder / "lines.jsonl"
    clock = StepClock(now=Ticking(50_000), cpu_now=Ticking(), start_ns=0)
    writer = JournalWriter(open_journal(path), clock, header=header(), on_failure=_fail, flush_s=0.01)
    forward = clock.context(clock.slot("forward", "forward"))
    clock.begin_training(clock.counters()[0], 0)
    for epoch in range(epochs):
        clock.begin_epoch(epoch, clock.counters()[0])
        for _ in range(steps):
            clock.begin_step()
            with forward:
                pass
        clock.end_epoch()
    clock.open_segment(None)
    writer.close([Footer(end_ns=clock._now(), status="finished", overhead={})])
    lines = path.read_bytes().splitlines(keepends=True)
    path.unlink()
    return lines


def up_to_epoch(lines: list[bytes], epochs: int) -> int:
    """How many lines there are when so many epochs are written."""
    blocks = [number for number, line in enumerate(lines) if line.startswith(b'{"k":"steps"')]
    assert len(blocks) >= epochs
    return blocks[epochs - 1] + 1


def _fail(error: OSError) -> None:
    raise AssertionError(error)
