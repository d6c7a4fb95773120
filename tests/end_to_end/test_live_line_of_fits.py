"""``GPUPROF_LIVE=1`` in real fits on a real terminal: beside no bar and above each of Lightning's."""

import re
import sys

import pytest
from fake_nvml import builder

from terminal_screen import run_in_terminal, screen

pytestmark = pytest.mark.slow

SCRIPT = """
import ctypes, logging, sys, threading, time
from pathlib import Path
import torch
import lightning.pytorch as pl
from lightning.pytorch.callbacks import ProgressBar, RichProgressBar, TQDMProgressBar
from torch.utils.data import DataLoader, TensorDataset
from lightning_gpuprof import GpuProfiler

library = sys.argv[1:]  # a driver for the fit without a bar
for file in library:
    ctypes.CDLL(file, ctypes.RTLD_GLOBAL)
logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
writers = set()

class Noting:
    def __init__(self, stream):
        self.stream = stream
    def write(self, text):
        if "gpuprof: step" in text:
            writers.add(threading.current_thread().name)
        return self.stream.write(text)
    def __getattr__(self, name):
        return getattr(self.stream, name)

class Model(pl.LightningModule):
    def __init__(self, flag):
        super().__init__()
        self.flag, self.layer = flag, torch.nn.Linear(8, 1)
    def training_step(self, batch, batch_idx):
        time.sleep(0.01)
        if self.flag.exists():
            self.trainer.should_stop = True
        return self.layer(batch[0]).square().mean()
    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.1)

class Other(ProgressBar):
    pass

sys.stderr = Noting(sys.stderr)
for name, bar in (("none", None), ("tqdm", TQDMProgressBar()), ("rich", RichProgressBar()), ("other", Other())):
    print(f"FIT {name}", flush=True)
    nvml = bool(library) and name == "none"
    profiler = GpuProfiler(reports=["json"], dirpath=name, windows=[], nvml=nvml, host=False)
    trainer = pl.Trainer(
        max_steps=5 if name == "other" else 10_000, accelerator="cpu", logger=False, enable_checkpointing=False,
        enable_model_summary=False, enable_progress_bar=bar is not None, callbacks=[profiler, *([bar] if bar else [])],
    )
    trainer.fit(Model(Path(f"{name}.flag")), DataLoader(TensorDataset(torch.randn(20_000, 8)), batch_size=2))
print("WRITERS", *sorted(writers), flush=True)
"""

DRIVER = builder.Scenario(gpus=(builder.FakeGpu(uuid="GPU-11111111"),))

TOLD = re.compile(r"gpuprof: step \d+(, none since \d+ s)? \| .* ms \| .* samples/s \| largest: forward \d+% \| .*%")


@pytest.fixture(scope="module")
def fits(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """What the terminal was given in each fit; a fit ends when its line was seen there, with the GPU if it has one."""
    folder = tmp_path_factory.mktemp("live")
    library = [] if builder.compiler() is None else [str(builder.build(DRIVER, folder))]
    (folder / "train.py").write_text(SCRIPT)

    def look(written: str) -> None:
        name, _, fit = written.rpartition("FIT ")[2].partition("\r\n")
        if ("gpu0: " if library and name == "none" else "gpuprof: step") in fit:
            (folder / f"{name}.flag").touch()

    code, written = run_in_terminal(
        [sys.executable, "train.py", *library],
        columns=140,
        environ={"GPUPROF_LIVE": "1", "CUDA_VISIBLE_DEVICES": "0"},
        cwd=folder,
        seen=look,
    )
    assert code == 0, written[-3000:]
    _, *parts = re.split(r"FIT (\w+)\r\n", written)
    return dict(zip(parts[::2], parts[1::2], strict=True))


def test_without_a_bar_one_line_is_written_over_and_goes(fits: dict[str, str]) -> None:
    assert "\rgpuprof: step" in fits["none"]
    assert not any("gpuprof: step" in line for line in screen(fits["none"]))


@pytest.mark.skipif(builder.compiler() is None, reason="no C compiler to build the fake driver with")
def test_where_a_driver_answers_the_line_ends_with_the_gpu(fits: dict[str, str]) -> None:
    assert "% | gpu0: 83% utilization, 18.6 GiB used" in fits["none"]
    assert "gpu0" not in fits["tqdm"]


@pytest.mark.parametrize("bar", ["tqdm", "rich"])
def test_lines_above_a_bar_are_whole_and_so_is_the_bar(fits: dict[str, str], bar: str) -> None:
    lines = screen(fits[bar])
    told = [line for line in lines if "gpuprof:" in line]
    assert told
    assert all(TOLD.fullmatch(line) for line in told), told
    (epoch,) = (line for line in lines if "Epoch" in line)
    assert lines.index(told[-1]) < lines.index(epoch)
    assert epoch.startswith("Epoch 0")


def test_a_bar_that_cannot_make_room_is_left_alone_and_that_is_told(fits: dict[str, str]) -> None:
    assert "gpuprof: step" not in fits["other"]
    assert fits["other"].count("no live line: it would tear Other") == 1


def test_the_training_thread_writes_nothing(fits: dict[str, str]) -> None:
    (writers,) = re.findall(r"WRITERS (.*)\r\n", fits["other"])
    assert writers == "gpuprof-live line"
