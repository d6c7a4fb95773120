"""Programs as users write them, a change, and the program after it; each runs beside ``things.py``."""

from __future__ import annotations

import textwrap
from collections.abc import Callable
from dataclasses import dataclass, field
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


def lacks(name: str) -> Callable[[Ran], bool]:
    return lambda ran: name not in {type(one).__name__ for one in ran.trainer.callbacks}


@dataclass(frozen=True, kw_only=True)
class Case:
    """A script, and what becomes of it.

    ``edits`` are lines of the script -> what stands there afterwards; "" for lines that go; a key "^LINE" adds before.
    """

    name: str
    script: str
    change: Change
    edits: dict[str, str] = field(default_factory=dict)
    ran: Callable[[Ran], bool] = lambda _: True
    why: str = ""
    """In the reason why it is not placed."""
    encoding: str = "utf-8"
    newline: str = "\n"
    more: dict[str, str] = field(default_factory=dict)
    """Further files -> what is in them; their edits are in ``edits``, too."""

    def files(self) -> dict[str, bytes]:
        texts = {"train.py": self.script, **self.more}
        return {name: self._bytes(_text(text)) for name, text in texts.items()}

    def after(self) -> dict[str, bytes]:
        texts = {name: _text(text) for name, text in {"train.py": self.script, **self.more}.items()}
        for old, new in self.edits.items():
            line, before = old.removeprefix("^"), old.startswith("^")
            (name,) = (name for name, text in texts.items() if line in text)
            assert texts[name].count(line) == 1, line
            texts[name] = texts[name].replace(line, new + line if before else new)
        return {name: self._bytes(text) for name, text in texts.items()}

    def _bytes(self, text: str) -> bytes:
        return text.replace("\n", self.newline).encode(self.encoding)


def _text(text: str) -> str:
    return textwrap.dedent(text).lstrip("\n")


def _plain(call: str) -> str:
    """The shortest program around a DataLoader."""
    return f"""
from lightning.pytorch import Trainer
from torch.utils.data import DataLoader
from things import Net, data

loader = {call}
trainer = Trainer(max_epochs=1)
trainer.fit(Net(), loader)
"""


TWO_LINES = """\
DataLoader(
    data,
    batch_size=4,  # fits on one GPU
    # the order of the files is that of the classes
    shuffle=True,  # so mix them
)"""
NO_COMMA = """\
DataLoader(
    data,
    shuffle=True  # so mix them
)"""
ALIGNED = """\
DataLoader(data,
                    batch_size=4,
                    shuffle=True)"""
DATAMODULE = """
from lightning.pytorch import LightningDataModule, Trainer
from torch.utils.data import DataLoader
from things import Net, data, held_out


class Data(LightningDataModule):
    def __init__(self, num_workers=0):
        super().__init__()
        self.num_workers = num_workers

    def train_dataloader(self):
        return self._loader(data, shuffle=True)

    def val_dataloader(self):
        return self._loader(held_out, shuffle=False)

    def _loader(self, dataset, **options):
        return DataLoader(dataset, num_workers=self.num_workers)

    def test_dataloader(self):
        return DataLoader(held_out, num_workers=0)


if __name__ == "__main__":
    trainer = Trainer()
    trainer.fit(Net(), datamodule=Data())
"""
CALLBACKS = """
from lightning.pytorch import Trainer
from lightning.pytorch.callbacks import DeviceStatsMonitor, ModelCheckpoint, RichProgressBar, Timer
from torch.utils.data import DataLoader
from things import Net, data

trainer = Trainer(
    callbacks=[
        Timer(),  # as long as it may
        DeviceStatsMonitor(),  # nice to look at
        RichProgressBar(refresh_rate=1),  # of course
        ModelCheckpoint(monitor="loss"),
    ],
)
trainer.fit(Net(), DataLoader(data))
"""
OPTIMIZER = """
import torch
from lightning.pytorch import Trainer
from torch import optim
from torch.utils.data import DataLoader
from things import Net, data

class Mine(Net):
    def configure_optimizers(self):
        optimizer = optim.AdamW(
            self.parameters(), lr=1e-3
        )
        return [optimizer]

model = Mine()
Trainer().fit(model, DataLoader(data))
"""

CASES = (
    Case(
        name="a value is replaced",
        script=_plain("DataLoader(data, batch_size=4, num_workers=0)"),
        change=WORKERS,
        edits={"num_workers=0": "num_workers=2"},
        ran=loads(num_workers=2, batch_size=4),
    ),
    Case(
        name="arguments are added in one line",
        script=_plain("DataLoader(data, batch_size=4)"),
        change=KEPT,
        edits={"batch_size=4)": "batch_size=4, num_workers=2, persistent_workers=True)"},
        ran=loads(num_workers=2, persistent_workers=True),
    ),
    Case(
        name="one argument a line, with comments",
        script=_plain(TWO_LINES),
        change=WORKERS,
        edits={"# so mix them\n": "# so mix them\n    num_workers=2,\n"},
        ran=loads(num_workers=2),
    ),
    Case(
        name="no comma after the last line",
        script=_plain(NO_COMMA),
        change=KEPT,
        edits={
            "shuffle=True  # so mix them\n": (
                "shuffle=True,  # so mix them\n    num_workers=2,\n    persistent_workers=True\n"
            )
        },
        ran=loads(num_workers=2, persistent_workers=True),
    ),
    Case(
        name="aligned with the bracket",
        script=_plain(ALIGNED),
        change=WORKERS,
        edits={"shuffle=True)": "shuffle=True,\n                    num_workers=2)"},
        ran=loads(num_workers=2),
    ),
    Case(
        name="several arguments a line",
        script=_plain("DataLoader(\n    data, batch_size=4, shuffle=True,\n)"),
        change=WORKERS,
        edits={"shuffle=True,": "shuffle=True, num_workers=2,"},
        ran=loads(num_workers=2),
    ),
    Case(
        name="blanks around the equals sign, and a value over two lines",
        script=_plain("DataLoader(\n  data, shuffle = True, num_workers = (\n    0),\n)"),
        change=KEPT,
        edits={"(\n    0),": "2, persistent_workers = True,"},
        ran=loads(num_workers=2, persistent_workers=True),
    ),
    Case(
        name="a value by position",
        script=_plain("DataLoader(data, 4, True)"),
        change=Change(call="DataLoader", arguments={"batch_size": 8, "num_workers": 2}),
        edits={"(data, 4, True)": "(data, 8, True, num_workers=2)"},
        ran=loads(batch_size=8, num_workers=2),
    ),
    Case(
        name="written out in full, in a nested call",
        script="""
        import torch
        import lightning as L
        from things import Net, data

        L.Trainer().fit(Net(), torch.utils.data.DataLoader(list(data), shuffle=bool(1)))
        """,
        change=WORKERS,
        edits={"bool(1)": "bool(1), num_workers=2"},
        ran=loads(num_workers=2),
    ),
    Case(
        name="under another name",
        script="""
        from pytorch_lightning import Trainer
        from torch.utils.data import DataLoader as Loader
        from things import Net, data

        Trainer().fit(Net(), Loader(data, num_workers=0))
        """,
        change=WORKERS,
        edits={"num_workers=0": "num_workers=2"},
    ),
    Case(
        name="from a module under another name",
        script="""
        from lightning.pytorch import Trainer
        import torch.utils.data as tud
        from things import Net, data

        Trainer().fit(Net(), tud.DataLoader(data))
        """,
        change=WORKERS,
        edits={"DataLoader(data)": "DataLoader(data, num_workers=2)"},
        ran=loads(num_workers=2),
    ),
    Case(
        name="all names of a module are imported",
        script="""
        from lightning.pytorch import *
        from torch.utils.data import *
        from things import Net, data

        Trainer().fit(Net(), DataLoader(data))
        """,
        change=WORKERS,
        edits={"DataLoader(data)": "DataLoader(data, num_workers=2)"},
        ran=loads(num_workers=2),
    ),
    Case(
        name="a subclass by its name",
        script="""
        from lightning.pytorch import Trainer
        from torch.utils.data import DataLoader
        from things import Net, data

        class MyDataLoader(DataLoader):
            pass

        Trainer().fit(Net(), MyDataLoader(data))
        """,
        change=Change(call="MyDataLoader", arguments={"num_workers": 2}),
        edits={"MyDataLoader(data)": "MyDataLoader(data, num_workers=2)"},
        ran=loads(num_workers=2),
    ),
    Case(
        name="a datamodule with a helper",
        script=DATAMODULE,
        change=WORKERS,
        edits={"num_workers=self.num_workers": "num_workers=2"},
        ran=loads(num_workers=2),
    ),
    Case(
        name="the helper is in another file",
        script="""
        from lightning.pytorch import Trainer
        from loading import loaders
        from things import Net

        def main():
            train, val = loaders(batch_size=4)
            Trainer().fit(Net(), train, val)

        if __name__ == "__main__":
            main()
        """,
        more={
            "loading.py": """
            from torch.utils.data import DataLoader
            from things import data, held_out

            def loaders(batch_size, num_workers=0):
                val_loader = DataLoader(held_out, batch_size, num_workers=num_workers)
                return DataLoader(data, batch_size, num_workers=num_workers, shuffle=True), val_loader
            """
        },
        change=WORKERS,
        edits={"num_workers=num_workers, shuffle": "num_workers=2, shuffle"},
        ran=loads(num_workers=2),
    ),
    Case(
        name="the loader of the validation",
        script="""
        from lightning.pytorch import Trainer
        from torch.utils.data import DataLoader
        from things import Net, data, held_out

        train_loader = DataLoader(data)
        val_loader = DataLoader(held_out)
        Trainer().fit(Net(), train_loader, val_loader)
        """,
        change=Change(call="DataLoader", arguments={"num_workers": 2}, inside="val_dataloader"),
        edits={"DataLoader(held_out)": "DataLoader(held_out, num_workers=2)"},
        ran=loads(num_workers=0),
    ),
    Case(
        name="a dict of loaders",
        script="""
        from lightning.pytorch import Trainer
        from torch.utils.data import DataLoader
        from things import Net, data, held_out

        sets = {"train": data, "val": held_out}
        loaders = {"val": DataLoader(held_out, batch_size=8)}
        loaders["train"] = DataLoader(data, batch_size=4)
        Trainer().fit(Net(), loaders["train"], loaders["val"])
        """,
        change=WORKERS,
        edits={"batch_size=4": "batch_size=4, num_workers=2"},
        ran=loads(num_workers=2),
    ),
    Case(
        name="the attribute that train_dataloader returns",
        script="""
        from lightning.pytorch import LightningDataModule, Trainer
        from torch.utils.data import DataLoader
        from things import Net, data, held_out

        class Data(LightningDataModule):
            def setup(self, stage):
                self.train = DataLoader(data)
                self.val = DataLoader(held_out)

            def train_dataloader(self):
                return self.train

        dm = Data()
        dm.setup("fit")
        trainer = Trainer()
        trainer.fit(Net(), dm)
        """,
        change=WORKERS,
        edits={"DataLoader(data)": "DataLoader(data, num_workers=2)"},
        ran=loads(num_workers=2),
    ),
    Case(
        name="the value of the run tells two loaders apart",
        script="""
        import sys
        from lightning.pytorch import Trainer
        from torch.utils.data import DataLoader
        from things import Net, data

        if "--debug" in sys.argv:
            loader = DataLoader(data, num_workers=1)
        else:
            loader = DataLoader(data, num_workers=0)
        Trainer().fit(Net(), loader)
        """,
        change=WORKERS,
        edits={"num_workers=0": "num_workers=2"},
        ran=loads(num_workers=2),
    ),
    Case(
        name="CRLF and tabs",
        script="""
from lightning.pytorch import Trainer
from torch.utils.data import DataLoader
from things import Net, data

def main():
\tloader = DataLoader(
\t\tdata,
\t\tbatch_size=4,
\t)
\tTrainer().fit(Net(), loader)

main()
""",
        newline="\r\n",
        change=WORKERS,
        edits={"\t\tbatch_size=4,\n": "\t\tbatch_size=4,\n\t\tnum_workers=2,\n"},
        ran=loads(num_workers=2),
    ),
    Case(
        name="latin-1",
        script="# -*- coding: latin-1 -*-\nname = 'Prüfung'; größe = 4\n"
        + _plain("DataLoader(data, batch_size=größe)"),
        encoding="latin-1",
        change=WORKERS,
        edits={"batch_size=größe": "batch_size=größe, num_workers=2"},
        ran=loads(num_workers=2),
    ),
    Case(
        name="a byte order mark, and no end of the last line",
        script=_plain("DataLoader(data)").rstrip(),
        encoding="utf-8-sig",
        change=WORKERS,
        edits={"DataLoader(data)": "DataLoader(data, num_workers=2)"},
        ran=loads(num_workers=2),
    ),
    Case(
        name="a notebook as a script",
        script="""
        #!/usr/bin/env python
        # coding: utf-8

        # # Training
        # In[1]:


        import lightning as L
        from torch.utils.data import DataLoader
        from things import Net, data


        # In[2]:


        loader = DataLoader(data, num_workers=0); loader


        # In[3]:


        trainer = L.Trainer(max_epochs=1)
        trainer.fit(Net(), loader)
        """,
        change=WORKERS,
        edits={"num_workers=0": "num_workers=2"},
        ran=loads(num_workers=2),
    ),
    Case(
        name="no workers any more",
        script=_plain("DataLoader(data, num_workers=2, prefetch_factor=4, persistent_workers=True)"),
        change=Change(call="DataLoader", arguments={"num_workers": 0}, before={"num_workers": 2}),
        edits={
            "num_workers=2, prefetch_factor=4, persistent_workers=True": (
                "num_workers=0, prefetch_factor=None, persistent_workers=False"
            )
        },
        ran=loads(num_workers=0),
    ),
    Case(
        name="a dict that is written out is unpacked",
        script=_plain('DataLoader(data, **{"batch_size": 4})'),
        change=WORKERS,
        edits={"(data, **": "(data, num_workers=2, **"},
        ran=loads(num_workers=2, batch_size=4),
    ),
    Case(
        name="an argument that is named, beside others that are unpacked",
        script="\noptions = {}\n" + _plain("DataLoader(data, num_workers=0, **options)"),
        change=WORKERS,
        edits={"num_workers=0": "num_workers=2"},
        ran=loads(num_workers=2),
    ),
    Case(
        name="a function for the workers",
        script=_plain("DataLoader(data, num_workers=2)"),
        change=Change(add=("DataLoader(..., worker_init_fn=lambda _: torch.set_num_threads(1))",)),
        edits={
            "num_workers=2": "num_workers=2, worker_init_fn=lambda _: torch.set_num_threads(1)",
            "^from lightning.pytorch import Trainer": "import torch\n",
        },
        ran=lambda ran: callable(ran.loader.worker_init_fn),
    ),
    Case(
        name="a Trainer without arguments",
        script=DATAMODULE,
        change=RARER,
        edits={"Trainer()": "Trainer(log_every_n_steps=100)"},
        ran=logs(100),
    ),
    Case(
        name="a line that would be too long is broken",
        script=_plain("DataLoader(data)").replace(
            "max_epochs=1", 'max_epochs=1, enable_progress_bar=False, accumulate_grad_batches=1, precision="32"'
        ),
        change=RARER,
        edits={
            'max_epochs=1, enable_progress_bar=False, accumulate_grad_batches=1, precision="32"': (
                "\n    max_epochs=1,\n    enable_progress_bar=False,\n    accumulate_grad_batches=1,\n"
                '    precision="32",\n    log_every_n_steps=100,\n'
            )
        },
        ran=logs(100),
    ),
    Case(
        name="strings in the quotes of the file",
        script="""
        import pytorch_lightning as pl
        from torch.utils.data import DataLoader
        from things import data
        name = 'run'
        trainer = pl.Trainer(accelerator='cpu', precision="32")
        """,
        change=Change(call="Trainer", arguments={"precision": "bf16-mixed", "profiler": "simple"}),
        edits={'precision="32"': "precision=\"bf16-mixed\", profiler='simple'"},
        ran=lambda ran: ran.trainer.precision == "bf16-mixed",
    ),
    Case(
        name="the Trainer that fits",
        script="""
        from lightning.pytorch import Trainer
        from torch.utils.data import DataLoader
        from things import Net, data

        tester = Trainer(logger=False)
        trainer = Trainer(logger=False)
        trainer.fit(Net(), DataLoader(data))
        """,
        change=RARER,
        edits={"\ntrainer = Trainer(logger=False": "\ntrainer = Trainer(logger=False, log_every_n_steps=100"},
        ran=logs(100),
    ),
    Case(
        name="an argument in place of another",
        script=_plain("DataLoader(data)").replace("max_epochs=1", "accumulate_grad_batches=1, max_epochs=1"),
        change=Change(
            remove=("Trainer(..., accumulate_grad_batches=1)",), add=("Trainer(..., accumulate_grad_batches=2)",)
        ),
        edits={"accumulate_grad_batches=1": "accumulate_grad_batches=2"},
        ran=lambda ran: ran.trainer.accumulate_grad_batches == 2,
    ),
    Case(
        name="a strategy that has to be imported",
        script=_plain("DataLoader(data)").replace("max_epochs=1", 'strategy="ddp"'),
        change=Change(
            remove=('Trainer(..., strategy="ddp")',),
            add=("Trainer(..., strategy=DDPStrategy(gradient_as_bucket_view=True))",),
        ),
        edits={
            'strategy="ddp"': "strategy=DDPStrategy(gradient_as_bucket_view=True)",
            "^from torch.utils": "from lightning.pytorch.strategies import DDPStrategy\n",
        },
        ran=lambda ran: type(ran.trainer.strategy).__name__ == "DDPStrategy",
    ),
    Case(
        name="a callback goes",
        script=CALLBACKS,
        change=NO_STATS,
        edits={"        DeviceStatsMonitor(),  # nice to look at\n": ""},
        ran=lacks("DeviceStatsMonitor"),
    ),
    Case(
        name="the last callback of the list goes",
        script=CALLBACKS,
        change=Change(remove=("ModelCheckpoint(...)",)),
        edits={'        ModelCheckpoint(monitor="loss"),\n': ""},
        ran=callbacks("Timer", "RichProgressBar"),
    ),
    Case(
        name="the only callback goes",
        script="""
        from lightning.pytorch import Trainer
        from lightning.pytorch.callbacks import DeviceStatsMonitor
        trainer = Trainer(callbacks=[DeviceStatsMonitor()])
        """,
        change=NO_STATS,
        edits={"[DeviceStatsMonitor()]": "[]"},
        ran=lacks("DeviceStatsMonitor"),
    ),
    Case(
        name="a callback that has a name goes",
        script="""
        from lightning.pytorch import Trainer
        from lightning.pytorch.callbacks import DeviceStatsMonitor, Timer
        stats = DeviceStatsMonitor()
        timer = Timer()
        callbacks = [timer, stats]
        trainer = Trainer(callbacks=callbacks)
        """,
        change=NO_STATS,
        edits={"stats = DeviceStatsMonitor()\n": "", "[timer, stats]": "[timer]"},
        ran=lacks("DeviceStatsMonitor"),
    ),
    Case(
        name="a callback that is appended goes",
        script="""
        from lightning.pytorch import Trainer
        from lightning.pytorch.callbacks import DeviceStatsMonitor, Timer
        callbacks = [Timer()]
        if True:
            callbacks.append(DeviceStatsMonitor())
        trainer = Trainer(callbacks=callbacks)
        """,
        change=NO_STATS,
        edits={"callbacks.append(DeviceStatsMonitor())": "pass"},
        ran=lacks("DeviceStatsMonitor"),
    ),
    Case(
        name="a callback that the Trainer makes goes",
        script=_plain("DataLoader(data)"),
        change=Change(remove=("ModelSummary(...)",)),
        edits={"max_epochs=1": "max_epochs=1, enable_model_summary=False"},
        ran=lacks("ModelSummary"),
    ),
    Case(
        name="a callback that the Trainer would make anew goes",
        script=CALLBACKS,
        change=Change(remove=("RichProgressBar(...)",)),
        edits={
            "        RichProgressBar(refresh_rate=1),  # of course\n": "",
            "    ],\n": "    ],\n    enable_progress_bar=False,\n",
        },
        ran=lacks("RichProgressBar"),
    ),
    Case(
        name="an argument of a callback",
        script=CALLBACKS,
        change=Change(call="RichProgressBar", arguments={"refresh_rate": 20}),
        edits={"refresh_rate=1": "refresh_rate=20"},
        ran=lambda ran: ran.trainer.progress_bar_callback.refresh_rate == 20,
    ),
    Case(
        name="a callback that the Trainer made so far",
        script=_plain("DataLoader(data)"),
        change=REFRESH,
        edits={
            "max_epochs=1": "max_epochs=1, callbacks=[TQDMProgressBar(refresh_rate=20)]",
            "^from torch.utils": "from lightning.pytorch.callbacks import TQDMProgressBar\n",
        },
        ran=lambda ran: ran.trainer.progress_bar_callback.refresh_rate == 20,
    ),
    Case(
        name="it joins a list, and an import of others",
        script="""
        import pytorch_lightning as pl
        from pytorch_lightning.callbacks import (
            Timer,
        )
        from things import data

        def main():
            callbacks = [
                Timer()  # as long as it may
            ]
            return pl.Trainer(max_epochs=1, callbacks=callbacks)

        main()
        """,
        change=REFRESH,
        edits={
            "Timer()  # as long as it may\n": (
                "Timer(),  # as long as it may\n        TQDMProgressBar(refresh_rate=20)\n"
            ),
            "    Timer,\n": "    Timer,\n    TQDMProgressBar,\n",
        },
        ran=lambda ran: ran.trainer.progress_bar_callback.refresh_rate == 20,
    ),
    Case(
        name="a checkpoint by time",
        script=CALLBACKS,
        change=Change(add=("ModelCheckpoint(..., train_time_interval=timedelta(minutes=5))",)),
        edits={
            'monitor="loss"': 'monitor="loss", train_time_interval=timedelta(minutes=5)',
            "^\ntrainer =": "from datetime import timedelta\n",
        },
        ran=lambda ran: ran.trainer.checkpoint_callback._train_time_interval.seconds == 300,
    ),
    Case(
        name="a line before the Trainer",
        script=DATAMODULE,
        change=MATMUL,
        edits={
            "^    trainer = Trainer()": '    torch.set_float32_matmul_precision("high")\n',
            "^from lightning.pytorch import": "import torch\n",
        },
        ran=lambda ran: ran.torch.get_float32_matmul_precision() == "high",
    ),
    Case(
        name="torch under another name",
        script="""
        import torch as th
        from lightning.pytorch import Trainer

        # the trainer
        trainer = Trainer()
        """,
        change=MATMUL,
        edits={"^trainer = ": 'th.set_float32_matmul_precision("high")\n'},
        ran=lambda ran: ran.torch.get_float32_matmul_precision() == "high",
    ),
    Case(
        name="another value of the same setting",
        script="""
        import torch
        from lightning.pytorch import Trainer
        torch.set_num_threads(2)  # it has two
        torch.backends.cudnn.allow_tf32 = False
        trainer = Trainer()
        """,
        change=THREADS,
        edits={"torch.set_num_threads(2)": "torch.set_num_threads(1)"},
        ran=lambda ran: ran.torch.get_num_threads() == 1,
    ),
    Case(
        name="another value of the same flag",
        script="""
        import torch
        from lightning.pytorch import Trainer
        torch.backends.cudnn.allow_tf32 = False  # exact
        trainer = Trainer()
        """,
        change=Change(
            remove=("torch.backends.cudnn.allow_tf32 = False",), add=("torch.backends.cudnn.allow_tf32 = True",)
        ),
        edits={"allow_tf32 = False": "allow_tf32 = True"},
        ran=lambda ran: ran.torch.backends.cudnn.allow_tf32 is True,
    ),
    Case(
        name="the model is compiled",
        script=OPTIMIZER.replace("Trainer().fit(", "trainer = Trainer()\ntrainer.fit("),
        change=COMPILE,
        edits={"^trainer.fit(": "model = torch.compile(model, dynamic=True)\n"},
        ran=lambda ran: type(ran.model).__name__ == "OptimizedModule",
    ),
    Case(
        name="a model without a name is compiled",
        script=_plain("DataLoader(data)"),
        change=COMPILE,
        edits={
            "fit(Net()": "fit(torch.compile(Net(), dynamic=True)",
            "^from lightning.pytorch import Trainer": "import torch\n",
        },
        ran=lambda ran: type(ran.model).__name__ == "OptimizedModule",
    ),
    Case(
        name="a model of the module, in a function",
        script="""
        import torch
        from lightning.pytorch import Trainer
        from torch.utils.data import DataLoader
        from things import Net, data

        model = Net()

        def main():
            Trainer().fit(model, DataLoader(data))

        main()
        """,
        change=COMPILE,
        edits={"fit(model": "fit(torch.compile(model, dynamic=True)"},
        ran=lambda ran: type(ran.model).__name__ == "OptimizedModule",
    ),
    Case(
        name="an optimizer",
        script=OPTIMIZER,
        change=FUSED,
        edits={"lr=1e-3": "lr=1e-3, fused=True"},
        ran=lambda ran: ran.model.configure_optimizers()[0].defaults["fused"] is True,
    ),
    Case(
        name="a statement goes",
        script="""
        import torch
        from things import Net

        class Mine(Net):
            def on_train_batch_end(self, *args):
                torch.cuda.empty_cache()  # it was full once
        """,
        change=Change(remove=("torch.cuda.empty_cache()",)),
        edits={"torch.cuda.empty_cache()": "pass"},
    ),
    # What has no place
    Case(
        name="unpacked arguments may have it",
        script="\noptions = dict(num_workers=0)\n" + _plain("DataLoader(data, **options)"),
        change=WORKERS,
        why="train.py:7 passes **options, which may set num_workers",
    ),
    Case(
        name="unpacked positions may have it",
        script="\noptions = (data, 4) if 0 else ()\n" + _plain("DataLoader(data, *options)"),
        change=WORKERS,
        why="by position",
        ran=lambda ran: True,
    ),
    Case(
        name="a partial function",
        script="""
        from functools import partial
        from lightning.pytorch import Trainer
        from torch.utils.data import DataLoader
        from things import Net, data

        make = partial(DataLoader, num_workers=0)
        Trainer().fit(Net(), make(data))
        """,
        change=WORKERS,
        why="train.py:6 builds DataLoader by functools.partial",
    ),
    Case(
        name="two training loaders",
        script="""
        from lightning.pytorch import Trainer
        from torch.utils.data import DataLoader
        from things import Net, data

        loaders = [DataLoader(data), DataLoader(data, batch_size=2)]
        Trainer().fit(Net(), loaders)
        """,
        change=WORKERS,
        why="train.py:5 and train.py:5 each have a DataLoader",
    ),
    Case(
        name="another package builds the loader",
        script="from lightning.pytorch import Trainer\nfrom things import Net\ntrainer = Trainer()\n",
        change=WORKERS,
        why="there is no DataLoader(...) in train.py: it is built elsewhere",
    ),
    Case(
        name="a DataLoader and a Trainer of another package",
        script="""
        from mine import DataLoader, Trainer

        Trainer().fit(DataLoader())
        """,
        more={
            "mine.py": """
            class DataLoader:
                pass

            class Trainer:
                def fit(self, loader):
                    pass
            """
        },
        change=WORKERS,
        why="there is no DataLoader(...)",
    ),
    Case(
        name="a loader that is not as that of the run",
        script=_plain("DataLoader(data, num_workers=8)"),
        change=WORKERS,
        why="train.py:5 has num_workers=8 and the run had 0",
    ),
    Case(
        name="batches of a sampler",
        script=_plain("DataLoader(data, batch_sampler=[[0, 1]])"),
        change=Change(call="DataLoader", arguments={"batch_size": 8}),
        why="sets batch_sampler, which excludes batch_size",
    ),
    Case(
        name="a function of the user's for the workers",
        script=_plain("DataLoader(data, num_workers=2, worker_init_fn=print)"),
        change=Change(add=("DataLoader(..., worker_init_fn=lambda _: torch.set_num_threads(1))",)),
        why="train.py:5 has its own worker_init_fn: print",
    ),
    Case(
        name="a setting under a condition",
        script="""
        import sys
        import torch
        from lightning.pytorch import Trainer
        if "--exact" in sys.argv:
            torch.set_num_threads(2)
        trainer = Trainer()
        """,
        change=THREADS,
        why="train.py:5 sets it under a condition",
    ),
    Case(
        name="the validation loader is that of the training",
        script=DATAMODULE,
        change=Change(call="DataLoader", arguments={"num_workers": 2}, inside="val_dataloader"),
        why="builds the loader of the training, too",
    ),
    Case(
        name="a variable of the environment",
        script=_plain("DataLoader(data)"),
        change=Change(add=("export PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True",)),
        why="environment variable",
    ),
    Case(
        name="the step itself",
        script=_plain("DataLoader(data)"),
        change=Change(remove=("value = tensor.item()",), add=("value = tensor.detach()",), file="train.py", line=5),
        why="train.py:5",
    ),
    Case(
        name="LightningCLI builds the Trainer",
        script="""
        from lightning.pytorch.cli import LightningCLI
        from things import Net

        def main():
            LightningCLI(Net)
        """,
        change=RARER,
        why="LightningCLI builds the Trainer",
    ),
    Case(
        name="a line that other statements share",
        script="from lightning.pytorch import Trainer\nimport torch; trainer = Trainer()\n",
        change=MATMUL,
        why="shares its line with other statements",
    ),
)
