"""The LightningModule's size, layers and optimizers."""

import itertools
import sys
from collections import Counter
from typing import Any

import torch
from torch import nn

from lightning_gpuprof.capture.conditions.compile_facts import is_wrapper
from lightning_gpuprof.capture.conditions.reading import Reader, Subject


def _sum_bytes(tensors: list[Any]) -> int:
    return sum(tensor.numel() * tensor.element_size() for tensor in tensors)


def _dtypes(subject: Subject) -> str:
    by_dtype: Counter[str] = Counter()
    for parameter in subject.parameters:
        by_dtype[str(parameter.dtype).removeprefix("torch.")] += parameter.numel() * parameter.element_size()
    return ", ".join(f"{dtype} {count}" for dtype, count in sorted(by_dtype.items()))


def _optimizers(subject: Subject) -> list[Any]:
    found = subject.module.optimizers(use_pl_optimizer=False)
    return [optimizer for optimizer in (found if isinstance(found, list) else [found]) if optimizer is not None]


def _first_group(subject: Subject, name: str) -> object:
    optimizers = _optimizers(subject)
    return optimizers[0].param_groups[0].get(name) if optimizers else None


def _layers(subject: Subject) -> int:
    return sum(1 for _, module in subject.modules if not module._modules and not is_wrapper(module))


def _convolutions(subject: Subject) -> list[Any]:
    return [module for _, module in subject.modules if isinstance(module, nn.modules.conv._ConvNd)]


def _stored_parameter(module: nn.Module, name: str) -> torch.Tensor | None:
    """A parameter, without the code that a parametrized one runs when it is asked for: that may draw random numbers."""
    return module._parameters.get(name)


def _channels_last(subject: Subject) -> int:
    return sum(
        1
        for module in _convolutions(subject)
        if isinstance(module, nn.Conv2d)
        and max(module.kernel_size) > 1  # of a 1 x 1 kernel both layouts are the same
        and (weight := _stored_parameter(module, "weight")) is not None
        and weight.is_contiguous(memory_format=torch.channels_last)
    )


def _bias_before_norm(subject: Subject) -> int:
    """Neighbours in a Sequential only: in other modules the order of the calls is not known."""
    return sum(
        1
        for _, module in subject.modules
        if isinstance(module, nn.Sequential)
        for first, second in itertools.pairwise(module)
        if isinstance(first, nn.modules.conv._ConvNd)
        and _stored_parameter(first, "bias") is not None
        and isinstance(second, nn.modules.batchnorm._BatchNorm)
    )


def _sync_batchnorms(subject: Subject) -> int | None:
    return sum(isinstance(module, nn.SyncBatchNorm) for _, module in subject.modules) or None


def _metrics_updated_twice(subject: Subject) -> str | None:
    """Names of torchmetrics' modules of which a call updates twice."""
    package = sys.modules.get("torchmetrics")
    if package is None:
        return None
    found = [(name, module) for name, module in subject.modules if isinstance(module, package.Metric)]
    twice = [name for name, metric in found if metric.full_state_update is not False or metric.dist_sync_on_step]
    return ", ".join(twice) or None


FACTS: dict[str, Reader] = {
    "model.class": lambda s: type(s.module).__qualname__,
    "model.parameters": lambda s: sum(p.numel() for p in s.parameters),
    "model.trainable_parameters": lambda s: sum(p.numel() for p in s.parameters if p.requires_grad),
    "model.parameter_tensors": lambda s: len(s.parameters),
    "model.parameter_bytes": lambda s: _sum_bytes(s.parameters),
    "model.parameter_dtypes": _dtypes,
    "model.buffer_bytes": lambda s: _sum_bytes(list(s.module.buffers())),
    "model.layers": _layers,
    "model.automatic_optimization": lambda s: s.module.automatic_optimization,
    "model.optimizer": lambda s: ", ".join(type(optimizer).__name__ for optimizer in _optimizers(s)),
    "model.optimizer_param_groups": lambda s: sum(len(optimizer.param_groups) for optimizer in _optimizers(s)) or None,
    "model.optimizer_fused": lambda s: _first_group(s, "fused"),
    "model.optimizer_foreach": lambda s: _first_group(s, "foreach"),
    "model.convolutions": lambda s: len(_convolutions(s)),
    "model.channels_last_convolutions": _channels_last,
    "model.conv_bias_before_norm": _bias_before_norm,
    "model.sync_batchnorms": _sync_batchnorms,
    "model.metrics_updated_twice": _metrics_updated_twice,
}
