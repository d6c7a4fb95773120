"""From a trainer, its model and its loaders to the conditions of the run: flat, with dotted names."""

from lightning_gpuprof.capture.conditions.collect import collect, cuda_uuids
from lightning_gpuprof.capture.conditions.first_batch import describe

__all__ = ["collect", "cuda_uuids", "describe"]
