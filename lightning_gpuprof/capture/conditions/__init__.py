"""The conditions of a run, flat and with dotted names: trainer, model, loaders, machine."""

from lightning_gpuprof.capture.conditions.collect import collect
from lightning_gpuprof.capture.conditions.first_batch import describe

__all__ = ["collect", "describe"]
