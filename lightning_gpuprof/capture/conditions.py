"""Facts of the run that its numbers depend on: model, loader, trainer, versions, machine; flat, with dotted names.

Only named facts are read. No environment variable is copied.
"""

from __future__ import annotations

import os
import platform
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from importlib import metadata
from numbers import Integral, Real
from typing import TYPE_CHECKING, Any

import torch
from torch.utils.data import DataLoader

from lightning_gpuprof.capture.cpus import usable_cpus
from lightning_gpuprof.model.journal import Value

if TYPE_CHECKING:
    import lightning.pytorch as pl

_DISTRIBUTIONS = ("lightning", "pytorch-lightning", "torch", "tensorboard", "torch-tb-profiler", "nvidia-ml-py")


def collect(trainer: pl.Trainer, module: pl.LightningModule, loaders: object) -> dict[str, Value]:
    """Everything known when training starts. A group of facts that cannot be read is left out.

    Args:
        trainer: After its dataloaders were set up.
        module: The model.
        loaders: One iterable, or a collection of them, that the steps are fed from.
    """
    values: dict[str, Value] = {}
    groups: list[Callable[[], Mapping[str, Value]]] = [
        versions,
        machine,
        lambda: _trainer(trainer),
        lambda: _model(module),
        lambda: loader(loaders),
        lambda: _device(trainer),
    ]
    for group in groups:
        try:
            values.update({name: _plain(value) for name, value in group().items()})
        except Exception as error:
            values[f"unreadable.{len(values)}"] = f"{type(error).__name__}: {error}"
    return values


def _plain(value: object) -> Value:
    """The value as the journal can hold it: numbers of numpy and the like become Python's, the rest text."""
    if value is None or isinstance(value, (bool, str)):
        return value
    if isinstance(value, (int, Integral)):
        return int(value)
    if isinstance(value, (float, Real)):
        return float(value)
    return str(value)


def versions() -> dict[str, Value]:
    """Python and the packages that take part."""
    found: dict[str, Value] = {"version.python": platform.python_version()}
    for name in _DISTRIBUTIONS:
        try:
            found[f"version.{name}"] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return found


def machine() -> dict[str, Value]:
    """CPUs as the process may use them, and threads."""
    affinity = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return {
        "machine.system": f"{platform.system()} {platform.machine()}",
        "cpu.count": os.cpu_count(),
        "cpu.affinity": affinity,
        "cpu.usable": usable_cpus(affinity=affinity, local_ranks=int(os.environ.get("LOCAL_WORLD_SIZE", "1") or 1)),
        "torch.num_threads": torch.get_num_threads(),
    }


def _trainer(trainer: Any) -> dict[str, Value]:
    return {
        "script": os.path.basename(sys.argv[0]) if sys.argv else "",  # noqa: PTH119 - a name, not a path to open
        "trainer.strategy": type(trainer.strategy).__name__,
        "trainer.precision": str(trainer.precision),
        "trainer.world_size": trainer.world_size,
        "trainer.accumulate_grad_batches": trainer.accumulate_grad_batches,
        "trainer.log_every_n_steps": getattr(trainer, "log_every_n_steps", None),
        "trainer.max_epochs": trainer.max_epochs,
        "trainer.max_steps": trainer.max_steps,
        "trainer.check_val_every_n_epoch": trainer.check_val_every_n_epoch,
        "trainer.val_check_interval": trainer.val_check_interval,
        "trainer.limit_val_batches": trainer.limit_val_batches,
        "trainer.loggers": ", ".join(type(logger).__name__ for logger in trainer.loggers),
        "trainer.callbacks": ", ".join(type(callback).__name__ for callback in trainer.callbacks),
        "trainer.detect_anomaly": bool(getattr(trainer, "_detect_anomaly", False)),
    }


def _model(module: pl.LightningModule) -> dict[str, Value]:
    parameters = list(module.parameters())
    optimizers = module.optimizers(use_pl_optimizer=False)
    several = optimizers if isinstance(optimizers, list) else [optimizers]
    return {
        "model.class": type(module).__qualname__,
        "model.parameters": sum(p.numel() for p in parameters),
        "model.parameter_bytes": sum(p.numel() * p.element_size() for p in parameters),
        "model.automatic_optimization": module.automatic_optimization,
        "model.optimizer": ", ".join(type(o).__name__ for o in several if o is not None),
    }


def _device(trainer: pl.Trainer) -> dict[str, Value]:
    device = trainer.strategy.root_device
    values: dict[str, Value] = {"device.type": device.type}
    if device.type == "cuda":
        properties = torch.cuda.get_device_properties(device)
        values |= {
            "device.name": properties.name,
            "device.memory_bytes": properties.total_memory,
            "device.cuda": torch.version.cuda,
        }
    return values


def loader(loaders: object) -> dict[str, Value]:
    """The DataLoader's arguments; of several, the one with the largest batches counts.

    Args:
        loaders: What ``trainer.train_dataloader`` or its like is: one iterable or a collection of them.
    """
    found = list(_flatten(loaders))
    values: dict[str, Value] = {"loader.count": len(found)}
    torch_loaders = [x for x in found if isinstance(x, DataLoader)]
    if not torch_loaders:
        values["loader.kind"] = ", ".join(sorted({type(x).__qualname__ for x in found}))
        return values
    main = max(torch_loaders, key=lambda x: x.batch_size or 0)
    batch_size = main.batch_size
    if batch_size is None:
        batch_size = getattr(main.batch_sampler, "batch_size", None)
    return values | {
        "loader.kind": type(main).__qualname__,
        "loader.num_workers": main.num_workers,
        "loader.batch_size": batch_size,
        "loader.pin_memory": main.pin_memory,
        "loader.persistent_workers": main.persistent_workers,
        "loader.prefetch_factor": main.prefetch_factor,
        "loader.drop_last": main.drop_last,
        "loader.dataset": type(main.dataset).__qualname__,
        "loader.sampler": type(main.sampler).__qualname__,
    }


def cuda_uuids(trainer: pl.Trainer) -> list[str]:
    """UUIDs of the CUDA devices of this process, without touching CUDA where it is not in use."""
    if trainer.strategy.root_device.type != "cuda":
        return []
    return [str(torch.cuda.get_device_properties(trainer.strategy.root_device).uuid)]


def _flatten(loaders: object) -> Iterator[object]:
    if isinstance(loaders, Mapping):
        for value in loaders.values():
            yield from _flatten(value)
    elif isinstance(loaders, Sequence) and not isinstance(loaders, (str, bytes)):
        for value in loaders:
            yield from _flatten(value)
    elif loaders is not None:
        yield loaders
