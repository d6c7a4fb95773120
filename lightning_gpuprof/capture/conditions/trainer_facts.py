"""The trainer's arguments, strategy, callbacks and loggers. Private parts as in lightning 2.6."""

import sys
from datetime import timedelta
from typing import Any

from lightning_gpuprof.capture.conditions.reading import Reader, Subject
from lightning_gpuprof.model.command_line import arguments_hash, script_name, shown_arguments

_LIGHTNING = frozenset({"lightning", "pytorch_lightning"})
_PIPELINE = frozenset({"pp", "pipeline", "pipeline_parallel"})
"""Names of a dimension of a mesh: torch's examples have the first, Lightning's style would be the last."""


def _classes(items: Any) -> str:
    return ", ".join(type(item).__name__ for item in items)


def _is_from_lightning(callback: Any) -> bool:
    return type(callback).__module__.partition(".")[0] in _LIGHTNING


def _configuration(subject: Subject) -> Any:
    """LightningCLI's configuration of this run: its own callback has it, to save it."""
    for callback in subject.trainer.callbacks:
        if any(one.__name__ == "SaveConfigCallback" for one in type(callback).__mro__):
            return callback.config
    return None


def _config_file(subject: Subject) -> str | None:
    files = (_configuration(subject) or {}).get("config")
    return str(files[0]) if isinstance(files, list) and len(files) == 1 else None


def _config_data(subject: Subject) -> str | None:
    data = (_configuration(subject) or {}).get("data")
    if data is None:
        return None
    given = data.get("init_args")
    section, names = ("data", data) if given is None else ("data.init_args", given)
    return ", ".join(f"{section}.{name}" for name in vars(names))


def _ddp(subject: Subject, name: str, default: object) -> object:
    """An argument of DDP; the default of torch if it was not given, and None for another strategy."""
    given = getattr(subject.trainer.strategy, "_ddp_kwargs", None)
    return None if given is None else given.get(name, default)


def _backend(subject: Subject) -> object:
    strategy = subject.trainer.strategy
    if subject.trainer.world_size == 1 and getattr(strategy, "_process_group_backend", None) is None:
        return None
    distributed = sys.modules.get("torch.distributed")
    if distributed is not None and distributed.is_available() and distributed.is_initialized():
        return distributed.get_backend()
    return getattr(strategy, "_process_group_backend", None)


def _pipeline_stage(subject: Subject) -> int | None:
    """This rank's place along the dimension of the strategy's DeviceMesh that is named for a pipeline."""
    mesh = subject.trainer.strategy.device_mesh
    along = [at for at, name in enumerate(mesh.mesh_dim_names) if name in _PIPELINE]
    return mesh.get_coordinate()[along[0]] if along else None


def _sharding(subject: Subject) -> object:
    strategy = subject.trainer.strategy
    fsdp = getattr(strategy, "sharding_strategy", None)
    if fsdp is not None:
        return getattr(fsdp, "name", fsdp)
    config = getattr(strategy, "config", None)  # DeepSpeed's
    if isinstance(config, dict) and "zero_optimization" in config:
        return f"zero stage {config['zero_optimization'].get('stage')}"
    sizes = [getattr(strategy, f"_{name}_parallel_size", None) for name in ("data", "tensor")]
    return None if None in sizes else f"data {sizes[0]} x tensor {sizes[1]}"


def _hook(subject: Subject) -> object:
    hook = getattr(subject.trainer.strategy, "_ddp_comm_hook", None)
    return None if hook is None else getattr(hook, "__name__", type(hook).__name__)


def _profiler(subject: Subject) -> str:
    profiler = subject.trainer.profiler
    return type(getattr(profiler, "inner", profiler)).__name__  # ours stands in front of it


def _total(counts: Any) -> object:
    return sum(counts) if isinstance(counts, list) else counts


def _max_time(subject: Subject) -> object:
    for callback in subject.trainer.callbacks:
        if type(callback).__name__ == "Timer":
            return str(callback._duration)
    return None


def _shortest(subject: Subject, name: str) -> int | None:
    found = [getattr(callback, name, None) for callback in subject.trainer.checkpoint_callbacks]
    return min((every for every in found if isinstance(every, int) and every > 0), default=None)


def _shortest_interval_s(subject: Subject) -> float | None:
    found = [getattr(callback, "_train_time_interval", None) for callback in subject.trainer.checkpoint_callbacks]
    return min((every.total_seconds() for every in found if isinstance(every, timedelta)), default=None)


def _save_top_k(subject: Subject) -> int | None:
    found = [k for c in subject.trainer.checkpoint_callbacks if isinstance(k := getattr(c, "save_top_k", None), int)]
    if not found:
        return None
    return -1 if -1 in found else max(found)


def _weights_only(subject: Subject) -> bool | None:
    found = [getattr(callback, "save_weights_only", False) for callback in subject.trainer.checkpoint_callbacks]
    return all(found) if found else None


def _built_at(subject: Subject) -> str | None:
    call = subject.stage_call
    place = None if call is None else call.made(call.trainer, "Trainer")
    return None if place is None else place.shown


FACTS: dict[str, Reader] = {
    "script": lambda s: script_name(sys.argv[0]) if sys.argv else "",
    "arguments": lambda s: shown_arguments(sys.argv[1:]),
    "arguments_hash": lambda s: arguments_hash(sys.argv[1:]),
    "trainer.built_at": _built_at,
    "trainer.strategy": lambda s: type(s.trainer.strategy).__name__,
    "trainer.accelerator": lambda s: type(s.trainer.accelerator).__name__,
    "trainer.precision": lambda s: str(s.trainer.precision),
    "trainer.precision_plugin": lambda s: type(s.trainer.strategy.precision_plugin).__name__,
    "trainer.world_size": lambda s: s.trainer.world_size,
    "trainer.num_nodes": lambda s: s.trainer.num_nodes,
    "trainer.devices": lambda s: s.trainer.num_devices,
    "trainer.backend": _backend,
    "trainer.find_unused_parameters": lambda s: _ddp(s, "find_unused_parameters", False),
    "trainer.static_graph": lambda s: _ddp(s, "static_graph", False),
    "trainer.bucket_cap_mb": lambda s: _ddp(s, "bucket_cap_mb", 25),
    "trainer.gradient_as_bucket_view": lambda s: _ddp(s, "gradient_as_bucket_view", False),
    "trainer.comm_hook": _hook,
    "trainer.sharding": _sharding,
    "trainer.tensor_parallel": lambda subject: getattr(subject.trainer.strategy, "_tensor_parallel_size", None),
    "trainer.pipeline_stage": _pipeline_stage,
    "trainer.sync_batchnorm": lambda s: s.trainer._accelerator_connector._layer_sync is not None,
    "trainer.accumulate_grad_batches": lambda s: s.trainer.accumulate_grad_batches,
    "trainer.gradient_clip_val": lambda s: s.trainer.gradient_clip_val,
    "trainer.gradient_clip_algorithm": lambda s: getattr(
        s.trainer.gradient_clip_algorithm, "value", s.trainer.gradient_clip_algorithm
    ),
    "trainer.max_epochs": lambda s: s.trainer.max_epochs,
    "trainer.max_steps": lambda s: s.trainer.max_steps,
    "trainer.max_time": _max_time,
    "trainer.limit_train_batches": lambda s: s.trainer.limit_train_batches,
    "trainer.limit_val_batches": lambda s: s.trainer.limit_val_batches,
    "trainer.num_training_batches": lambda s: s.trainer.num_training_batches if s.trainer.training else None,
    "trainer.num_val_batches": lambda s: _total(s.trainer.num_val_batches) if s.trainer.training else None,
    "trainer.check_val_every_n_epoch": lambda s: s.trainer.check_val_every_n_epoch,
    "trainer.val_check_interval": lambda s: s.trainer.val_check_interval,
    "trainer.num_sanity_val_steps": lambda s: s.trainer.num_sanity_val_steps,
    "trainer.reload_dataloaders_every_n_epochs": lambda s: s.trainer.reload_dataloaders_every_n_epochs,
    "trainer.use_distributed_sampler": lambda s: s.trainer._accelerator_connector.use_distributed_sampler,
    "trainer.log_every_n_steps": lambda s: getattr(s.trainer, "log_every_n_steps", None),
    "trainer.loggers": lambda s: _classes(s.trainer.loggers),
    "trainer.callbacks": lambda s: _classes(s.trainer.callbacks),
    "trainer.config_file": _config_file,
    "trainer.config_data": _config_data,
    "trainer.callbacks_not_of_lightning": lambda s: _classes(
        c for c in s.trainer.callbacks if not _is_from_lightning(c)
    ),
    "trainer.profiler": _profiler,
    "trainer.progress_bar": lambda s: (
        type(s.trainer.progress_bar_callback).__name__ if s.trainer.progress_bar_callback is not None else "none"
    ),
    "trainer.progress_bar_refresh_rate": lambda s: getattr(s.trainer.progress_bar_callback, "refresh_rate", None),
    "trainer.checkpoint_every_n_train_steps": lambda s: _shortest(s, "_every_n_train_steps"),
    "trainer.checkpoint_every_n_epochs": lambda s: _shortest(s, "_every_n_epochs"),
    "trainer.checkpoint_train_time_interval_s": _shortest_interval_s,
    "trainer.checkpoint_save_top_k": _save_top_k,
    "trainer.checkpoint_save_weights_only": _weights_only,
    "trainer.checkpoint_io": lambda s: type(s.trainer.strategy.checkpoint_io).__name__,
    "trainer.detect_anomaly": lambda s: bool(s.trainer._detect_anomaly),
}
