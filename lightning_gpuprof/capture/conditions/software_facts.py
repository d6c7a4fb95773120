"""Versions of what is imported. Only what nobody imports is looked up on disk, which takes a millisecond."""

from __future__ import annotations

import functools
import platform
import re
import sys
from importlib import metadata

from lightning_gpuprof.capture.conditions.reading import Reader, Subject, file_text

_IMPORTED = {
    "torch": "torch",
    "lightning": "lightning",
    "pytorch-lightning": "pytorch_lightning",
    "torchmetrics": "torchmetrics",
    "numpy": "numpy",
    "triton": "triton",
    "tensorboard": "tensorboard.version",
}
_INSTALLED = ("torch-tb-profiler", "nvidia-ml-py")


def _imported(module: str) -> Reader:
    def reader(subject: Subject) -> object:
        found = sys.modules.get(module)
        return getattr(found, "__version__", None) or getattr(found, "VERSION", None)

    return reader


def _installed(name: str) -> Reader:
    @functools.cache
    def version() -> str | None:
        try:
            return metadata.version(name)
        except metadata.PackageNotFoundError:
            return None

    return lambda subject: version()


def _driver(subject: Subject) -> str | None:
    """From ``NVRM version: NVIDIA UNIX x86_64 Kernel Module  535.129.03  …``, the open module's with more words."""
    text = file_text(subject.around.proc / "driver" / "nvidia" / "version") or ""
    found = re.search(r"Kernel Module.*?\s(\d+\.\d[\d.]*)", text)
    return found.group(1) if found else None


FACTS: dict[str, Reader] = {
    "version.python": lambda s: platform.python_version(),
    **{f"version.{name}": _imported(module) for name, module in _IMPORTED.items()},
    **{f"version.{name}": _installed(name) for name in _INSTALLED},
    "version.driver": _driver,
    "version.kernel": lambda s: platform.release(),
}
