"""A started TensorBoard and what its tabs are served, and a fit of two ranks to look at in it."""

import contextlib
import gzip
import json
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from python_process import run_python
from tensorboard_server import PATIENCE_S, served

TWO_RANKS = """
import sys, time
import lightning as L, patience, torch
from lightning.pytorch.loggers import TensorBoardLogger
from torch.utils.data import DataLoader, TensorDataset
from lightning_gpuprof import GpuProfiler, TraceConfig

patience.begin()

class Net(L.LightningModule):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(64, 10)
    def training_step(self, batch, batch_idx):
        return torch.nn.functional.cross_entropy(self.layer(batch[0]), batch[1])
    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.01)

if __name__ == "__main__":
    torch.set_num_threads(1)
    folder = sys.argv[1]
    data = TensorDataset(torch.randn(1024, 64), torch.randint(0, 10, (1024,)))
    profiler = GpuProfiler(
        reports=["json", "tensorboard"], windows=[(10, 11), (20, 21)], nvml=False, host=False,
        trace=TraceConfig(ranks=[0, 1], with_stack=True, profile_memory=True),
    )
    trainer = L.Trainer(
        accelerator="cpu", devices=2, strategy="ddp", max_epochs=1, limit_train_batches=26, log_every_n_steps=5,
        logger=TensorBoardLogger(folder, name="two_ranks", version=0), default_root_dir=folder,
        enable_checkpointing=False, enable_progress_bar=False, callbacks=[profiler],
    )
    trainer.fit(Net(), DataLoader(data, batch_size=16))
"""


class TwoRanks:
    """A fit of two ranks with two windows, everything that a window can record, in a folder beside the other run."""

    def __init__(self, folder: Path) -> None:
        program = folder / "program.py"
        program.write_text(TWO_RANKS)
        run_python(program, folder)
        self.run = folder / "two_ranks" / "version_0"

    def trace(self, rank: int, span: int) -> dict[str, Any]:
        """What a rank recorded in a window."""
        file = sorted((self.run / "gpuprof").glob(f"rank{rank}.*.pt.trace.json.gz"))[span - 1]
        found: dict[str, Any] = json.loads(gzip.decompress(file.read_bytes()))
        return found


class Server:
    """A started TensorBoard."""

    def __init__(self, address: str) -> None:
        self.address = address

    def get(self, path: str, until: Callable[[Any], object] = bool, **query: object) -> Any:
        """What is at an address: JSON or, if it is none, bytes; asked for until it is there."""
        address = f"{self.address}/data/plugin/{path}?{urllib.parse.urlencode(query)}"
        deadline = time.monotonic() + PATIENCE_S
        while True:
            try:
                with urllib.request.urlopen(address, timeout=30) as response:
                    body = response.read()
                    packed = response.headers.get("Content-Encoding") == "gzip" or body.startswith(b"\x1f\x8b")
                found = json.loads(gzip.decompress(body) if packed else body)
            except urllib.error.HTTPError as error:
                found = None
                if time.monotonic() > deadline:
                    raise AssertionError(f"{address}: {error}") from error
            if found and until(found):
                return found
            assert time.monotonic() < deadline, f"{address} stays without what is waited for: {found}"
            time.sleep(0.3)

    def profiler(self, path: str, **query: object) -> Any:
        """An answer of the profiler tab."""
        return self.get(f"pytorch_profiler/{path}", **query)


@contextlib.contextmanager
def started(logdir: Path) -> Iterator[Server]:
    """TensorBoard over a folder."""
    with served(logdir, logdir / "server.log") as address:
        yield Server(address)


def breakdown(overview: dict[str, Any]) -> dict[str, dict[str, float]]:
    """Step → part → microseconds, from the table behind the tab's chart of steps."""
    columns = [column.get("name") for column in overview["steps"]["columns"]]
    return {
        row[0]: {name: value for name, value in zip(columns[1:], row[1:], strict=True) if name is not None}
        for row in overview["steps"]["rows"]
    }


def step_lengths(trace: dict[str, Any]) -> dict[str, float]:
    """Step → microseconds, as the trace has them."""
    named = [(event["name"], event.get("dur", 0)) for event in trace["traceEvents"]]
    return {name.removeprefix("ProfilerStep#"): us for name, us in named if name.startswith("ProfilerStep#")}


def dashboard(server: Server, run: str) -> dict[str, dict[str, dict[str, list[tuple[int, float]]]]]:
    """Group → chart → name → step and value of each point, as the Custom Scalars tab draws them for a run."""
    found: dict[str, dict[str, dict[str, list[tuple[int, float]]]]] = {}
    for group in server.get("custom_scalars/layout")["category"]:
        for chart in group["chart"]:
            curves: dict[str, list[tuple[int, float]]] = {}
            for tag in chart["multiline"]["tag"]:
                answer = server.get("custom_scalars/scalars", run=run, tag=tag)
                assert answer["regex_valid"], tag
                curves |= {
                    name: [(step, y) for _, step, y in points] for name, points in answer["tag_to_events"].items()
                }
            found.setdefault(group["title"], {})[chart["title"]] = curves
    return found
