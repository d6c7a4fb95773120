"""The flags of torch's global state and the device that computing depends on; CUDA is never started."""

import gc
import sys
from typing import Any

import torch

from lightning_gpuprof.capture.conditions.reading import Reader, Subject

# Parts of torch without annotations.
_cuda: Any = torch.cuda
_cudnn: Any = torch.backends.cudnn
_multiprocessing: Any = torch.multiprocessing

_SDPA = ("flash", "mem_efficient", "math", "cudnn")


def _device(subject: Subject) -> Any:
    return subject.trainer.strategy.root_device


def _properties(subject: Subject) -> Any:
    """Of the CUDA device, if CUDA is in use already."""
    device = _device(subject)
    if device.type != "cuda" or not _cuda.is_initialized():
        return None
    return _cuda.get_device_properties(device)


def _property(subject: Subject, name: str) -> object:
    properties = _properties(subject)
    return getattr(properties, name, None)


def _capability(subject: Subject) -> str | None:
    properties = _properties(subject)
    return None if properties is None else f"{properties.major}.{properties.minor}"


def _sdpa_backends(subject: Subject) -> str:
    backends = torch.backends.cuda
    return ", ".join(name for name in _SDPA if getattr(backends, f"{name}_sdp_enabled", bool)())


def _compile_disabled(subject: Subject) -> bool:
    config = sys.modules.get("torch._dynamo.config")
    off = subject.around.environ.get("TORCHDYNAMO_DISABLE", "0") == "1"
    return off or bool(getattr(config, "disable", False))


def _allocator_backend(subject: Subject) -> str | None:
    return _cuda.get_allocator_backend() if _cuda.is_initialized() else None


def _nccl_version(subject: Subject) -> str | None:
    if not _cuda.is_initialized():
        return None
    found = _cuda.nccl.version()
    return ".".join(map(str, found)) if isinstance(found, tuple) else str(found)


FACTS: dict[str, Reader] = {
    "device.type": lambda s: _device(s).type,
    "device.name": lambda s: _property(s, "name"),
    "device.capability": _capability,
    "device.visible_count": lambda s: _cuda.device_count() if _cuda.is_initialized() else None,
    "device.memory_bytes": lambda s: _property(s, "total_memory"),
    "device.multiprocessors": lambda s: _property(s, "multi_processor_count"),
    "device.threads_per_multiprocessor": lambda s: _property(s, "max_threads_per_multi_processor"),
    "device.threads_per_block": lambda s: _property(s, "max_threads_per_block"),
    "device.threads_per_warp": lambda s: _property(s, "warp_size"),
    "device.registers_per_multiprocessor": lambda s: _property(s, "regs_per_multiprocessor"),
    "device.shared_per_multiprocessor_bytes": lambda s: _property(s, "shared_memory_per_multiprocessor"),
    "device.shared_per_block_bytes": lambda s: _property(s, "shared_memory_per_block_optin"),
    "device.l2_cache_bytes": lambda s: _property(s, "L2_cache_size"),
    "device.cuda": lambda s: torch.version.cuda if _device(s).type == "cuda" else None,
    "version.cuda": lambda s: torch.version.cuda,
    "version.hip": lambda s: torch.version.hip,
    "version.cudnn": lambda s: _cudnn.version() if _cuda.is_initialized() else None,
    "version.nccl": _nccl_version,
    "flags.detect_anomaly": lambda s: torch.is_anomaly_enabled(),
    "flags.float32_matmul_precision": lambda s: torch.get_float32_matmul_precision(),
    "flags.matmul_tf32": lambda s: torch.backends.cuda.matmul.allow_tf32,
    "flags.cudnn_tf32": lambda s: torch.backends.cudnn.allow_tf32,
    "flags.cudnn_enabled": lambda s: torch.backends.cudnn.enabled,
    "flags.cudnn_benchmark": lambda s: torch.backends.cudnn.benchmark,
    "flags.cudnn_deterministic": lambda s: torch.backends.cudnn.deterministic,
    "flags.deterministic_algorithms": lambda s: torch.are_deterministic_algorithms_enabled(),
    "flags.sdpa_backends": _sdpa_backends,
    "flags.default_dtype": lambda s: str(torch.get_default_dtype()).removeprefix("torch."),
    "flags.compile_disabled": _compile_disabled,
    "flags.python_debugger": lambda s: sys.gettrace() is not None,
    "flags.gc_enabled": lambda s: gc.isenabled(),
    "flags.sharing_strategy": lambda s: _multiprocessing.get_sharing_strategy(),
    "torch.num_threads": lambda s: torch.get_num_threads(),
    "torch.num_interop_threads": lambda s: torch.get_num_interop_threads(),
    "allocator.backend": _allocator_backend,
}
