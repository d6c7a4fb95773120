"""What becomes of the programs in ``patching_cases.txt``: the change, and what holds when the result runs."""

import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lightning_gpuprof.model.change import Change

THINGS = """\
import torch
from lightning.pytorch import LightningDataModule, LightningModule
from lightning.pytorch.callbacks import Callback
from torch.utils.data import TensorDataset

data = TensorDataset(torch.zeros(16, 2))
held_out = TensorDataset(torch.ones(8, 2))


class Net(LightningModule):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(2, 1)

    def training_step(self, batch, batch_idx):
        return self.layer(batch[0]).sum()

    def configure_optimizers(self):
        return torch.optim.AdamW(self.parameters())
"""

WORKERS = Change(call="DataLoader", arguments={"num_workers": 2}, before={"num_workers": 0})
KEPT = Change(call="DataLoader", arguments={"num_workers": 2, "persistent_workers": True}, before={"num_workers": 0})
RARER = Change(call="Trainer", arguments={"log_every_n_steps": 100}, before={"log_every_n_steps": 50})
MATMUL = Change(add=('torch.set_float32_matmul_precision("high")',))
THREADS = Change(remove=("torch.set_num_threads(2)",), add=("torch.set_num_threads(1)",))
COMPILE = Change(add=("model = torch.compile(model, dynamic=True)",))
REFRESH = Change(call="TQDMProgressBar", arguments={"refresh_rate": 20})
NO_STATS = Change(remove=("DeviceStatsMonitor(...)",))
FUSED = Change(call="torch.optim.AdamW", arguments={"fused": True})

Ran = Any


def loads(**wanted: object) -> Callable[[Ran], bool]:
    """The training loader has these attributes."""
    return lambda ran: all(getattr(ran.loader, name) == value for name, value in wanted.items())


def logs(every: int) -> Callable[[Ran], bool]:
    return lambda ran: ran.trainer.log_every_n_steps == every


def callbacks(*names: str) -> Callable[[Ran], bool]:
    """These callbacks of the user's, or with these values, are in the trainer."""
    return lambda ran: set(names) <= {type(one).__name__ for one in ran.trainer.callbacks}


def fits(ran: Ran) -> bool:
    """It ran."""
    return True


def lacks(name: str) -> Callable[[Ran], bool]:
    return lambda ran: name not in {type(one).__name__ for one in ran.trainer.callbacks}


@dataclass(frozen=True, kw_only=True)
class Case:
    """A program, a change, and what becomes of it.

    Attributes:
        name: What is special.
        change: What is advised.
        before: The program's files.
        after: The same with the change; as before, if it is not placed.
        ran: Whether the program after the change did what it should.
        why: In the reason why the change is not placed; "" if it is.
    """

    name: str
    change: Change
    before: dict[str, bytes]
    after: dict[str, bytes]
    ran: Callable[[Ran], bool]
    why: str


USUAL = """\
from lightning.pytorch import Trainer
from torch.utils.data import DataLoader
from things import Net, data

"""
WRITTEN = {
    "CRLF and tabs": ("utf-8", "\r\n"),
    "latin-1": ("latin-1", "\n"),
    "a byte order mark, and no end of the last line": ("utf-8-sig", "\n"),
}
"""Encoding and end of lines, where they are not the usual ones."""


def _side(name: str, text: str, side: str) -> dict[str, bytes]:
    """The files of a case, without the lines of the other side."""
    encoding, newline = WRITTEN.get(name, ("utf-8", "\n"))
    files: dict[str, bytes] = {}
    for file, marked in re.findall(r"^--- (.*)\n((?:(?!--- ).*\n)*)", f"--- train.py\n{text}", re.MULTILINE):
        lines = [line[1:] for line in marked.splitlines() if line[:1] in ("", " ", side)]
        program = "".join(USUAL if line == "..." else f"{line}\n" for line in lines)
        program = program.removesuffix("\n") if marked.endswith("\\\n") else program
        files[file] = program.replace("\n", newline).encode(encoding)
    return files


def plain(call: str) -> str:
    """The shortest program around a DataLoader."""
    return f"{USUAL}loader = {call}\ntrainer = Trainer(max_epochs=1)\ntrainer.fit(Net(), loader)\n"


EXPECTED: dict[str, tuple[Change, Callable[[Ran], bool] | str]] = {
    "a value is replaced": (WORKERS, loads(num_workers=2, batch_size=4)),
    "arguments are added in one line": (KEPT, loads(num_workers=2, persistent_workers=True)),
    "one argument a line, with comments": (WORKERS, loads(num_workers=2)),
    "no comma after the last line": (KEPT, loads(num_workers=2, persistent_workers=True)),
    "aligned with the bracket": (WORKERS, loads(num_workers=2)),
    "several arguments a line": (WORKERS, loads(num_workers=2)),
    "blanks around the equals sign, and a value over two lines": (KEPT, loads(num_workers=2, persistent_workers=True)),
    "a value by position": (
        Change(call="DataLoader", arguments={"batch_size": 8, "num_workers": 2}),
        loads(batch_size=8, num_workers=2),
    ),
    "written out in full, in a nested call": (WORKERS, loads(num_workers=2)),
    "under another name": (WORKERS, fits),
    "from a module under another name": (WORKERS, loads(num_workers=2)),
    "all names of a module are imported": (WORKERS, loads(num_workers=2)),
    "a subclass by its name": (Change(call="MyDataLoader", arguments={"num_workers": 2}), loads(num_workers=2)),
    "a datamodule with a helper": (WORKERS, loads(num_workers=2)),
    "the helper is in another file": (WORKERS, loads(num_workers=2)),
    "the loader of the validation": (
        Change(call="DataLoader", arguments={"num_workers": 2}, inside="val_dataloader"),
        loads(num_workers=0),
    ),
    "a dict of loaders": (WORKERS, loads(num_workers=2)),
    "the attribute that train_dataloader returns": (WORKERS, loads(num_workers=2)),
    "the value of the run tells two loaders apart": (WORKERS, loads(num_workers=2)),
    "CRLF and tabs": (WORKERS, loads(num_workers=2)),
    "latin-1": (WORKERS, loads(num_workers=2)),
    "a byte order mark, and no end of the last line": (WORKERS, loads(num_workers=2)),
    "a notebook as a script": (WORKERS, loads(num_workers=2)),
    "no workers any more": (
        Change(call="DataLoader", arguments={"num_workers": 0}, before={"num_workers": 2}),
        loads(num_workers=0),
    ),
    "a dict that is written out is unpacked": (WORKERS, loads(num_workers=2, batch_size=4)),
    "an argument that is named, beside others that are unpacked": (WORKERS, loads(num_workers=2)),
    "a function for the workers": (
        Change(add=("DataLoader(..., worker_init_fn=lambda _: torch.set_num_threads(1))",)),
        lambda ran: callable(ran.loader.worker_init_fn),
    ),
    "a Trainer without arguments": (RARER, logs(100)),
    "a line that would be too long is broken": (RARER, logs(100)),
    "strings in the quotes of the file": (
        Change(call="Trainer", arguments={"precision": "bf16-mixed", "profiler": "simple"}),
        lambda ran: ran.trainer.precision == "bf16-mixed",
    ),
    "the Trainer that fits": (RARER, logs(100)),
    "an argument in place of another": (
        Change(remove=("Trainer(..., accumulate_grad_batches=1)",), add=("Trainer(..., accumulate_grad_batches=2)",)),
        lambda ran: ran.trainer.accumulate_grad_batches == 2,
    ),
    "a strategy that has to be imported": (
        Change(
            remove=('Trainer(..., strategy="ddp")',),
            add=("Trainer(..., strategy=DDPStrategy(gradient_as_bucket_view=True))",),
        ),
        lambda ran: type(ran.trainer.strategy).__name__ == "DDPStrategy",
    ),
    "a callback goes": (NO_STATS, lacks("DeviceStatsMonitor")),
    "the last callback of the list goes": (
        Change(remove=("ModelCheckpoint(...)",)),
        callbacks("Timer", "RichProgressBar"),
    ),
    "the only callback goes": (NO_STATS, lacks("DeviceStatsMonitor")),
    "a callback that has a name goes": (NO_STATS, lacks("DeviceStatsMonitor")),
    "a callback that is appended goes": (NO_STATS, lacks("DeviceStatsMonitor")),
    "a callback that the Trainer makes goes": (Change(remove=("ModelSummary(...)",)), lacks("ModelSummary")),
    "a callback that the Trainer would make anew goes": (
        Change(remove=("RichProgressBar(...)",)),
        lacks("RichProgressBar"),
    ),
    "an argument of a callback": (
        Change(call="RichProgressBar", arguments={"refresh_rate": 20}),
        lambda ran: ran.trainer.progress_bar_callback.refresh_rate == 20,
    ),
    "a callback that the Trainer made so far": (
        REFRESH,
        lambda ran: ran.trainer.progress_bar_callback.refresh_rate == 20,
    ),
    "it joins a list, and an import of others": (
        REFRESH,
        lambda ran: ran.trainer.progress_bar_callback.refresh_rate == 20,
    ),
    "a checkpoint by time": (
        Change(add=("ModelCheckpoint(..., train_time_interval=timedelta(minutes=5))",)),
        lambda ran: ran.trainer.checkpoint_callback._train_time_interval.seconds == 300,
    ),
    "a line before the Trainer": (MATMUL, lambda ran: ran.torch.get_float32_matmul_precision() == "high"),
    "torch under another name": (MATMUL, lambda ran: ran.torch.get_float32_matmul_precision() == "high"),
    "another value of the same setting": (THREADS, lambda ran: ran.torch.get_num_threads() == 1),
    "another value of the same flag": (
        Change(remove=("torch.backends.cudnn.allow_tf32 = False",), add=("torch.backends.cudnn.allow_tf32 = True",)),
        lambda ran: ran.torch.backends.cudnn.allow_tf32 is True,
    ),
    "the model is compiled": (COMPILE, lambda ran: type(ran.model).__name__ == "OptimizedModule"),
    "a model without a name is compiled": (COMPILE, lambda ran: type(ran.model).__name__ == "OptimizedModule"),
    "a model of the module, in a function": (COMPILE, lambda ran: type(ran.model).__name__ == "OptimizedModule"),
    "an optimizer": (FUSED, lambda ran: ran.model.configure_optimizers()[0].defaults["fused"] is True),
    "a statement goes": (Change(remove=("torch.cuda.empty_cache()",)), fits),
    # what has no place, and why
    "unpacked arguments may have it": (WORKERS, "train.py:7 passes **options, which may set num_workers"),
    "unpacked positions may have it": (WORKERS, "by position"),
    "a partial function": (WORKERS, "train.py:6 builds DataLoader by functools.partial"),
    "two training loaders": (WORKERS, "train.py:5 and train.py:5 each have a DataLoader"),
    "another package builds the loader": (WORKERS, "there is no DataLoader(...) in train.py: it is built elsewhere"),
    "a DataLoader and a Trainer of another package": (WORKERS, "there is no DataLoader(...)"),
    "a loader that is not as that of the run": (WORKERS, "train.py:5 has num_workers=8 and the run had 0"),
    "batches of a sampler": (
        Change(call="DataLoader", arguments={"batch_size": 8}),
        "sets batch_sampler, which excludes batch_size",
    ),
    "a function of the user's for the workers": (
        Change(add=("DataLoader(..., worker_init_fn=lambda _: torch.set_num_threads(1))",)),
        "train.py:5 has its own worker_init_fn: print",
    ),
    "a setting under a condition": (THREADS, "train.py:5 sets it under a condition"),
    "the validation loader is that of the training": (
        Change(call="DataLoader", arguments={"num_workers": 2}, inside="val_dataloader"),
        "builds the loader of the training, too",
    ),
    "a variable of the environment": (
        Change(add=("export PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True",)),
        "environment variable",
    ),
    "the step itself": (
        Change(remove=("value = tensor.item()",), add=("value = tensor.detach()",), file="train.py", line=5),
        "train.py:5",
    ),
    "LightningCLI builds the Trainer": (RARER, "LightningCLI builds the Trainer"),
    "a line that other statements share": (MATMUL, "shares its line with other statements"),
}
_TEXT = Path(__file__).with_suffix(".txt").read_text(encoding="utf-8")
CASES = tuple(
    Case(
        name=name,
        change=EXPECTED[name][0],
        before=_side(name, text, "-"),
        after=_side(name, text, "+"),
        ran=expected if callable(expected := EXPECTED[name][1]) else fits,
        why=expected if isinstance(expected, str) else "",
    )
    for name, text in re.findall(r"^=== (.*)\n((?:(?!===).*\n)*)", _TEXT, re.MULTILINE)
)
assert [case.name for case in CASES] == list(EXPECTED)
