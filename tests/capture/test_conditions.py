"""Which conditions are read from which run and machine, and that reading them touches nothing."""

import gc
import json
import random
import weakref
from collections import UserDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import lightning.pytorch as pl
import pytest
import torch
import torchmetrics
from jsonargparse import Namespace
from lightning.pytorch.cli import LightningArgumentParser, SaveConfigCallback
from python_process import run_python
from quiet_trainer import trainer_in
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

from lightning_gpuprof.capture.conditions import first_batch, machine_facts, software_facts, torch_facts
from lightning_gpuprof.capture.conditions.collect import READERS, collect
from lightning_gpuprof.capture.conditions.reading import Subject, Surroundings, read
from lightning_gpuprof.model.conditions import BY_NAME, ENVIRONMENT, FACTS
from lightning_gpuprof.model.journal import Value

BATCH_FACTS = {"batch.objects", "batch.tensors", "batch.dtypes", "batch.shapes", "batch.bytes", "batch.device"}


class Model(pl.LightningModule):
    def __init__(self) -> None:
        super().__init__()
        self.net = nn.Sequential(nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.Flatten(), nn.Linear(4 * 36, 2))
        self.net[3].bias.requires_grad_(False)

    def training_step(self, batch: Any, batch_idx: int) -> torch.Tensor:
        return self.net(batch[0]).mean()

    def validation_step(self, batch: Any, batch_idx: int) -> None:
        self.net(batch[0])

    def configure_optimizers(self) -> Any:
        return torch.optim.SGD(self.parameters(), lr=0.1, foreach=True)


class Reads(pl.Callback):
    """Collects as a session does, when the steps begin."""

    def __init__(self, around: Surroundings | None) -> None:
        self.around = around
        self.found: dict[str, Value] = {}

    def on_train_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        drawn = random.getstate(), torch.get_rng_state()
        self.found = collect(trainer, pl_module, trainer.train_dataloader, self.around)
        assert random.getstate() == drawn[0]
        assert torch.equal(torch.get_rng_state(), drawn[1])


def rows(count: int = 24) -> TensorDataset:
    return TensorDataset(torch.ones(count, 1, 8, 8), torch.zeros(count, dtype=torch.long))


def conditions_of(
    folder: Path,
    *,
    change: Callable[[Model], object] = lambda model: None,
    around: Surroundings | None = None,
    loader: Any = None,
    **options: Any,
) -> dict[str, Value]:
    model, reads = Model(), Reads(around)
    change(model)
    settings = {
        "max_epochs": None,
        "max_steps": 1,
        "enable_checkpointing": True,
        "num_sanity_val_steps": None,
        **options,
    }
    trainer = trainer_in(folder, [reads], **settings)
    train = DataLoader(rows(), batch_size=6, shuffle=True, drop_last=True) if loader is None else loader
    trainer.fit(model, train, DataLoader(rows(8), batch_size=4))
    return reads.found


def on_machine(**around: Any) -> Any:
    return Subject(None, None, None, Surroundings(**{"environ": {}, **around}))


def test_every_fact_has_a_reader_and_a_line_in_the_documentation() -> None:
    listed = {fact.name for fact in FACTS} | {f"env.{name}" for name in ENVIRONMENT}
    anomaly = ("nodes", "stack_us", "stack_most_us", "checks", "check_us", "check_most_us")
    of_the_first_loss = {f"flags.anomaly_{name}" for name in anomaly}
    assert set(READERS) | BATCH_FACTS | of_the_first_loss == listed
    assert len(FACTS) == len({fact.name for fact in FACTS})


def test_a_plain_run_shows_model_loaders_and_trainer(tmp_path: Path) -> None:
    found = conditions_of(tmp_path, accumulate_grad_batches=2, gradient_clip_val=0.5)
    expected: Mapping[str, Value] = {
        "model.class": "Model",
        "model.parameters": 4 * 9 + 4 + 8 + 144 * 2 + 2,
        "model.trainable_parameters": 4 * 9 + 4 + 8 + 144 * 2,
        "model.layers": 4,
        "model.conv_bias_before_norm": 1,
        "model.convolutions": 1,
        "model.optimizer": "SGD",
        "model.optimizer_foreach": True,
        "loader.batch_size": 6,
        "loader.shuffle": True,
        "loader.drop_last": True,
        "loader.dataset_length": 24,
        "val_loader.batch_size": 4,
        "val_loader.shuffle": False,
        "trainer.accumulate_grad_batches": 2,
        "trainer.gradient_clip_val": 0.5,
        "trainer.num_training_batches": 4,
        "trainer.num_val_batches": 2,
        "trainer.checkpoint_every_n_epochs": 1,
        "trainer.checkpoint_save_top_k": 1,
        "device.type": "cpu",
        "compile.state": "none",
        "flags.float32_matmul_precision": torch.get_float32_matmul_precision(),
    }
    assert {name: found.get(name) for name in expected} == expected
    assert len(found) > 80


def test_each_of_several_loaders_has_facts_and_its_keys() -> None:
    class Unreadable(UserDict):
        def items(self) -> Any:
            raise OSError("gone")

    plain, fed = DataLoader(rows(), batch_size=6), DataLoader(rows(8), batch_size=2, num_workers=2)
    nested = {"a": plain, "b": [iter([]), fed]}
    found = collect(None, None, nested, Surroundings(environ={}))  # type: ignore[arg-type]
    one_each = {name: value for name, value in found.items() if name.endswith((".key", ".num_workers", ".batch_size"))}
    assert one_each == {
        "loader.batch_size": 6,
        "loader.num_workers": 0,
        "loader.0.key": "['a']",
        "loader.0.num_workers": 0,
        "loader.2.key": "['b'][1]",
        "loader.2.num_workers": 2,
    }
    assert "loader.2.prefetch_factor" in found
    for single in (plain, [plain], Unreadable(nested)):
        assert not any(".0." in name for name in collect(None, None, single, Surroundings(environ={})))  # type: ignore[arg-type]


class Timer(pl.Callback):
    """Named as one of Lightning's."""


def test_whose_callbacks_they_are_and_how_often_checkpoints_come_by_time() -> None:
    saves = pl.callbacks.ModelCheckpoint(train_time_interval=timedelta(minutes=2))
    trainer = SimpleNamespace(callbacks=[Timer(), saves, pl.callbacks.Timer()], checkpoint_callbacks=[saves])
    subject = Subject(trainer, None, None, Surroundings(environ={}))
    found = {
        name: READERS[f"trainer.{name}"](subject)
        for name in ("callbacks_not_of_lightning", "checkpoint_train_time_interval_s", "checkpoint_every_n_train_steps")
    }
    assert found == {
        "callbacks_not_of_lightning": "Timer",
        "checkpoint_train_time_interval_s": 120.0,
        "checkpoint_every_n_train_steps": None,
    }


@pytest.mark.parametrize("nested", [False, True])
def test_the_configuration_of_a_command_line_is_known(nested: bool) -> None:
    data: dict[str, object] = {"num_workers": 0, "batch_size": 32}
    given = Namespace(init_args=Namespace(data)) if nested else Namespace(data)
    config = Namespace(config=["configs/digits.yaml"], data=given)
    saves = SaveConfigCallback(LightningArgumentParser(), config)
    subject = Subject(SimpleNamespace(callbacks=[saves]), None, None, Surroundings(environ={}))
    assert READERS["trainer.config_file"](subject) == "configs/digits.yaml"
    section = "data.init_args" if nested else "data"
    assert READERS["trainer.config_data"](subject) == f"{section}.num_workers, {section}.batch_size"
    without = Subject(SimpleNamespace(callbacks=[Timer()]), None, None, Surroundings(environ={}))
    assert READERS["trainer.config_file"](without) is READERS["trainer.config_data"](without) is None


@pytest.mark.slow
def test_reading_starts_neither_cuda_nor_dynamo_and_keeps_the_random_numbers(tmp_path: Path) -> None:
    code = (
        "import sys, random, torch, lightning.pytorch as pl\n"
        "from lightning.pytorch.demos.boring_classes import BoringModel\n"
        "from lightning_gpuprof.capture.conditions import collect\n"
        "class Reads(pl.Callback):\n"
        "    def on_train_start(self, trainer, module):\n"
        "        before, rng = set(sys.modules), (random.getstate(), torch.get_rng_state())\n"
        "        import multiprocessing; method = multiprocessing.get_start_method(allow_none=True)\n"
        "        assert len(collect(trainer, module, trainer.train_dataloader)) > 60\n"
        "        assert rng[0] == random.getstate() and torch.equal(rng[1], torch.get_rng_state())\n"
        "        assert not torch.cuda.is_initialized() and 'torch._dynamo' not in set(sys.modules) - before\n"
        "        assert multiprocessing.get_start_method(allow_none=True) == method\n"
        "        print('read')\n"
        f"pl.Trainer(max_steps=1, accelerator='cpu', logger=False, enable_checkpointing=False, callbacks=[Reads()],\n"
        f"           default_root_dir={str(tmp_path)!r}).fit(BoringModel())\n"
    )
    assert "read" in run_python("-c", code).stdout


class Drawn(nn.Module):
    """A parametrization that draws: its weight is another one each time that it is asked for."""

    def forward(self, weight: torch.Tensor) -> torch.Tensor:
        return weight + torch.rand_like(weight)


def test_weights_that_run_code_when_they_are_asked_for_are_not_asked(tmp_path: Path) -> None:
    model = Model()
    nn.utils.parametrizations.spectral_norm(model.net[0])
    nn.utils.parametrize.register_parametrization(model.net[0], "bias", Drawn())
    model.train()
    subject: Any = Subject(trainer=None, module=model, loaders=None, around=Surroundings(environ={}))
    before = torch.get_rng_state(), {name: buffer.clone() for name, buffer in model.named_buffers()}
    for name in ("model.channels_last_convolutions", "model.conv_bias_before_norm"):
        assert READERS[name](subject) == 0
    assert torch.equal(torch.get_rng_state(), before[0])
    assert all(torch.equal(buffer, before[1][name]) for name, buffer in model.named_buffers())


class Recall(torchmetrics.Metric):
    """One's own, which says nothing of how it is updated."""

    def update(self) -> None: ...

    def compute(self) -> Tensor:
        return torch.zeros(())


def test_metrics_of_which_a_call_updates_twice_are_named() -> None:
    model = nn.ModuleDict({"mean": torchmetrics.MeanMetric(), "all": torchmetrics.MetricCollection([Recall()])})
    subject: Any = Subject(trainer=None, module=model, loaders=None, around=Surroundings(environ={}))
    assert READERS["model.metrics_updated_twice"](subject) == "all.Recall"


class Answers:
    """Has whatever it is asked for."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        self.__dict__.setdefault("asked", []).append(name)
        return self


def test_attributes_of_the_module_are_not_asked_for_what_only_they_would_answer(tmp_path: Path) -> None:
    config = Answers()
    found = conditions_of(tmp_path, change=lambda model: setattr(model, "config", config))
    assert found["compile.state"] == "none"
    assert "asked" not in vars(config)


def test_synchronised_norms_are_counted(tmp_path: Path) -> None:
    def convert(model: Any) -> None:
        model.norms = nn.Sequential(nn.SyncBatchNorm(4), nn.BatchNorm1d(4), nn.SyncBatchNorm(4))

    assert conditions_of(tmp_path, change=convert)["model.sync_batchnorms"] == 2
    assert "model.sync_batchnorms" not in conditions_of(tmp_path)


def test_the_order_is_not_known_of_a_sampler_that_nobody_asks(tmp_path: Path) -> None:
    class Buckets(torch.utils.data.Sampler[list[int]]):
        def __iter__(self) -> Any:
            return iter([[1, 0], [3, 2]])

        def shuffle(self) -> None:
            """A method, not a switch."""

    found = conditions_of(tmp_path, loader=DataLoader(rows(), batch_sampler=Buckets()))
    assert found["loader.batch_sampler"].endswith("Buckets")
    assert "loader.shuffle" not in found or found["loader.shuffle"] is None
    assert found.get("loader.sampler") is None


def test_the_cpus_of_a_host_are_divided_among_its_ranks_whoever_started_them() -> None:
    class Two:
        world_size, num_nodes = 8, 2

    around = Surroundings(environ={})
    assert machine_facts._local_ranks(Subject(trainer=Two(), module=None, loaders=None, around=around)) == 4
    launched = Surroundings(environ={"LOCAL_WORLD_SIZE": "2"})
    assert machine_facts._local_ranks(Subject(trainer=Two(), module=None, loaders=None, around=launched)) == 2


def test_a_fact_that_fails_is_absent_and_takes_no_other_with_it() -> None:
    def fails(subject: Subject) -> object:
        raise RuntimeError("planted")

    readers = {
        "a": lambda s: 1,
        "b": fails,
        "c": lambda s: None,
        "d": lambda s: "x" * 1000,
        "e": lambda s: float("inf"),
    }
    found = read(readers, on_machine())
    assert list(found) == ["a", "d", "e"]
    assert len(str(found["d"])) == 400
    assert found["e"] == "inf"


def test_a_worker_that_dies_while_facts_are_read_ends_the_run() -> None:
    def dies(subject: Subject) -> object:
        raise RuntimeError("DataLoader worker (pid 1) is killed by signal")

    with pytest.raises(RuntimeError, match="worker"):
        read({"a": dies}, on_machine())


@pytest.mark.parametrize(
    ("change", "state", "modules", "backend"),
    [
        (lambda m: setattr(m, "net", torch.compile(m.net, backend="eager")), "submodules", "net", "eager"),
        (lambda m: m.net[3].compile(backend="eager"), "submodules", "net.3", "eager"),
        (
            lambda m: setattr(m, "forward", torch.compile(m.net.forward, backend="eager")),
            "submodules",
            "forward()",
            None,
        ),
        (lambda m: m.compile(backend="eager"), "module", "(the whole module)", "eager"),
    ],
)
def test_what_is_compiled_is_known(tmp_path: Path, change: Any, state: str, modules: str, backend: str | None) -> None:
    found = conditions_of(tmp_path, change=change)
    assert (found["compile.state"], found["compile.modules"]) == (state, modules)
    assert backend is None or found.get("compile.backend") == backend
    assert found["model.layers"] == 4  # the wrappers do not count


def test_the_mode_of_inductor_is_known_without_compiling(tmp_path: Path) -> None:
    def compiled(model: Model) -> None:
        model.spare = torch.compile(nn.Linear(2, 2), mode="reduce-overhead", dynamic=True)

    found = conditions_of(tmp_path, change=compiled)
    names = ("backend", "mode", "dynamic", "fullgraph")
    assert [found[f"compile.{name}"] for name in names] == ["inductor", "reduce-overhead", True, False]


@pytest.mark.parametrize(
    ("address", "kinds", "switch"),
    [
        ("s0.s2.node7", "switch.switch.node", "s2"),
        ("node7", "node", None),
        ("b1.node7", "block.node", None),
        ("s0.rack.node7", "switch.node", None),
    ],
)
def test_the_switch_of_a_node_is_the_last_one_that_slurm_names(address: str, kinds: str, switch: str | None) -> None:
    environ = {"SLURM_TOPOLOGY_ADDR": address, "SLURM_TOPOLOGY_ADDR_PATTERN": kinds}
    assert READERS["slurm.switch"](on_machine(environ=environ)) == switch


def test_only_listed_variables_are_read_and_no_secret_gets_in(tmp_path: Path) -> None:
    environ = {"OMP_NUM_THREADS": "4", "AWS_SECRET_ACCESS_KEY": "hush", "NCCL_DEBUG": "INFO", "MY_TOKEN": "hush"}
    environ |= {"PYTORCH_ALLOC_CONF": "expandable_segments:True", "SLURM_JOB_ID": "7"}
    found = conditions_of(tmp_path, around=Surroundings(environ=environ))
    assert {name: value for name, value in found.items() if name.startswith("env.")} == {
        "env.OMP_NUM_THREADS": "4",
        "env.NCCL_DEBUG": "INFO",
    }
    assert (found["allocator.settings"], found["slurm.job_id"]) == ("expandable_segments:True", "7")
    assert "hush" not in json.dumps(found)


def test_no_listed_variable_is_of_a_kind_that_holds_secrets() -> None:
    assert not [n for n in ENVIRONMENT if any(w in n for w in ("KEY", "TOKEN", "SECRET", "PASS", "URL", "HOST", "DIR"))]


def tree(root: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    return root


COMMIT = "0123456789abcdef0123456789abcdef01234567"


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        ({".git/HEAD": COMMIT}, COMMIT[:12]),
        ({".git/HEAD": "ref: refs/heads/main\n", ".git/refs/heads/main": f"{COMMIT}\n"}, COMMIT[:12]),
        ({".git/HEAD": "ref: refs/heads/main", ".git/packed-refs": f"# pack\n{COMMIT} refs/heads/main\n"}, COMMIT[:12]),
        (
            {
                ".git": "gitdir: real/worktrees/w\n",
                "real/worktrees/w/HEAD": "ref: refs/heads/b",
                "real/worktrees/w/commondir": "../..\n",
                "real/refs/heads/b": COMMIT,
            },
            COMMIT[:12],
        ),
        ({".git/HEAD": "ref: refs/heads/new"}, None),
        ({".git/HEAD": "no commit at all"}, None),
    ],
)
def test_the_commit_is_read_without_git(tmp_path: Path, files: dict[str, str], expected: str | None) -> None:
    below = tree(tmp_path, files) / "below"
    below.mkdir()
    found = read(software_facts.FACTS, on_machine(folder=below))
    assert found.get("git.commit") == expected


def test_limits_of_a_gpu_are_those_that_this_torch_reports(monkeypatch: pytest.MonkeyPatch) -> None:
    known = {
        "threads_per_multiprocessor": ("max_threads_per_multi_processor", 2048),
        "threads_per_warp": ("warp_size", 32),
        "registers_per_multiprocessor": ("regs_per_multiprocessor", 65536),
        "shared_per_multiprocessor_bytes": ("shared_memory_per_multiprocessor", 233472),
        "shared_per_block_bytes": ("shared_memory_per_block_optin", 232448),
    }
    properties = SimpleNamespace(**dict(known.values()))  # of a torch without max_threads_per_block
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: True)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda device: properties)
    on_gpu = SimpleNamespace(strategy=SimpleNamespace(root_device=torch.device("cuda", 0)))
    of_device = {name: reader for name, reader in torch_facts.FACTS.items() if "per_" in name}
    found = read(of_device, Subject(on_gpu, None, None, Surroundings(environ={})))
    assert found == {f"device.{name}": value for name, (_, value) in known.items()}


def test_the_machine_is_read_from_its_files(tmp_path: Path) -> None:
    proc = tree(
        tmp_path / "proc",
        {
            "cpuinfo": "processor\t: 0\nmodel name\t: Fast CPU\n\nprocessor\t: 1\nmodel name\t: Other\n",
            "meminfo": "MemTotal:       1024 kB\nMemFree: 1 kB\n",
            "self/cgroup": "0::/kubepods/pod1\n",
            "driver/nvidia/version": "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  550.54.15  Release\n",
        },
    )
    sys_files = {f"devices/system/node/node{n}/cpulist": f"{1000 * n}-{1000 * n + 999}" for n in range(2)}
    sys_root = tree(
        tmp_path / "sys", {"devices/system/node/online": "0-1", "fs/cgroup/cpu.max": "150000 100000", **sys_files}
    )
    subject = on_machine(proc=proc, sys=sys_root, root=tmp_path / "empty")
    found = read({**machine_facts.FACTS, **software_facts.FACTS}, subject)
    assert found["machine.cpu"] == "Fast CPU"
    assert found["machine.memory_bytes"] == 1 << 20
    assert (found["machine.numa_nodes"], found["machine.affinity_numa_nodes"]) == (2, "0")
    assert found["cpu.quota"] == 1.5
    assert found["machine.container"] == "kubernetes"
    assert found["version.driver"] == "550.54.15"


def test_a_machine_without_any_of_its_files_leaves_them_out(tmp_path: Path) -> None:
    found = read(machine_facts.FACTS, on_machine(proc=tmp_path, sys=tmp_path, root=tmp_path))
    assert found["machine.container"] == "none"
    assert {"machine.cpu", "machine.memory_bytes", "machine.numa_nodes", "cpu.quota"}.isdisjoint(found)
    assert found["cpu.usable"] == found["cpu.affinity"]


@pytest.mark.parametrize(
    ("policy", "known"),
    [
        (lambda model: model, True),
        (lambda model: model.training_step, True),
        (lambda model: next(child for child in model.children() if list(child.parameters())), True),
        (lambda model: torch.nn.Linear(2, 2), False),  # a transform may be a module, too
    ],
    ids=["the model", "a method", "a part", "another module"],
)
def test_a_dataset_that_uses_the_model_is_known(tmp_path: Path, policy: Any, known: bool) -> None:
    dataset = rows()
    found = conditions_of(
        tmp_path,
        change=lambda model: setattr(dataset, "policy", policy(model)),
        loader=DataLoader(dataset, batch_size=6),
    )
    assert found["loader.dataset_has_model"] is known


def test_a_dataset_whose_sampler_asks_for_no_length_is_not_asked(tmp_path: Path) -> None:
    class Shy(TensorDataset):
        def __len__(self) -> int:
            raise AssertionError("asked for its length")

    class Own(torch.utils.data.Sampler[int]):
        def __iter__(self) -> Any:
            return iter(range(12))

        def __len__(self) -> int:
            return 12

    found = conditions_of(tmp_path, loader=DataLoader(Shy(*rows().tensors), batch_size=6, sampler=Own()))
    assert "loader.dataset_length" not in found
    assert found["loader.sampler"].endswith("Own")  # type: ignore[union-attr]
    assert "loader.shuffle" in found


@dataclass
class Pair:
    image: torch.Tensor
    label: torch.Tensor


X, Y = torch.ones(2, 3), torch.zeros(2, dtype=torch.long)


@pytest.mark.parametrize(
    "batch", [(X, Y), [X, [Y]], {"a": X, "b": Y}, UserDict({"a": X, "b": Y}), Pair(X, Y), {"x": (X, "name", None, Y)}]
)
def test_tensors_of_the_first_batch_are_described_in_order(batch: object) -> None:
    found = first_batch.describe(batch)
    assert 3 <= found.pop("batch.objects") <= 6  # type: ignore[operator]
    assert found == {
        "batch.tensors": 2,
        "batch.dtypes": "float32, int64",
        "batch.shapes": "[2, 3], [2]",
        "batch.bytes": 2 * 3 * 4 + 2 * 8,
        "batch.device": "cpu",
    }


def test_the_objects_of_the_first_batch_are_counted() -> None:
    assert first_batch.describe((X, Y))["batch.objects"] == 3
    assert first_batch.describe((X, [(1, 2)] * 100))["batch.objects"] == 303
    assert first_batch.describe((X, [(1, 2)] * 5000))["batch.objects"] == first_batch.MAX_LOOKS
    assert first_batch.describe([X] * 70 + [1] * 500)["batch.objects"] == 571
    assert first_batch.describe([[1] * 500]) == {"batch.objects": 502}


def test_strange_batches_end_and_do_no_harm() -> None:
    itself: list[object] = [X]
    itself.append(itself)
    assert first_batch.describe(itself)["batch.tensors"]
    assert first_batch.describe(list(range(1_000_000))) == {"batch.objects": first_batch.MAX_LOOKS}
    assert first_batch.describe([X] * 1000)["batch.tensors"] == first_batch.MAX_TENSORS
    for batch in ("text", None, object()):
        assert first_batch.describe(batch) == {"batch.objects": 1}


def test_a_tensor_of_the_users_own_class_runs_none_of_its_code() -> None:
    class Loud(torch.Tensor):
        @classmethod
        def __torch_function__(cls, *args: Any, **kwargs: Any) -> Any:
            raise AssertionError("was asked")

    loud = torch.ones(2, 2).as_subclass(Loud)
    assert first_batch.describe(loud)["batch.shapes"] == "[2, 2]"


@dataclass(slots=True)
class Slotted:
    images: torch.Tensor


def test_a_data_class_without_a_dictionary_is_described() -> None:
    assert first_batch.describe(Slotted(torch.ones(2, 3)))["batch.shapes"] == "[2, 3]"
    assert first_batch.describe([Slotted, torch.ones(1)])["batch.tensors"] == 1


def test_nothing_of_the_batch_is_kept() -> None:
    batch = {"x": torch.ones(3)}
    gone = weakref.ref(batch["x"])
    first_batch.describe(batch)
    del batch
    gc.collect()
    assert gone() is None


def test_all_known_names_have_a_group_and_a_source() -> None:
    assert all(fact.source for fact in BY_NAME.values())
