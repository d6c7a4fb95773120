"""Versions, flags, allocator settings and job ids: of what is imported, from the environment and the working folder.

Only what nobody imports is looked up on disk, which takes a millisecond. Of the environment a list of names is read
(see ``model/conditions.py``); no other variable is looked at, and none is copied whole.
"""

import functools
import platform
import re
import sys
from importlib import metadata
from pathlib import Path

from lightning_gpuprof.capture.conditions.reading import Reader, Subject, file_text
from lightning_gpuprof.model.conditions import ENVIRONMENT

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


_SLURM = {
    "slurm.job_id": "SLURM_JOB_ID",
    "slurm.num_nodes": "SLURM_JOB_NUM_NODES",
    "slurm.tasks": "SLURM_NTASKS",
    "slurm.cpus_per_task": "SLURM_CPUS_PER_TASK",
    "slurm.partition": "SLURM_JOB_PARTITION",
}
_COMMIT = re.compile(r"[0-9a-f]{40}(?:[0-9a-f]{24})?")
_MAX_FOLDERS_UP = 10
_SHOWN_DIGITS = 12


def _variable(name: str) -> Reader:
    return lambda s: s.around.environ.get(name) or None


def _slurm_switch(subject: Subject) -> str | None:
    """The one that the node is attached to: ``s2`` of ``s0.s2.node7``, with the kinds ``switch.switch.node``."""
    environ = subject.around.environ
    names = environ.get("SLURM_TOPOLOGY_ADDR", "").split(".")
    kinds = environ.get("SLURM_TOPOLOGY_ADDR_PATTERN", "").split(".")
    return names[-2] if kinds[-2:] == ["switch", "node"] and len(names) == len(kinds) else None


def _allocator(subject: Subject) -> str | None:
    environ = subject.around.environ
    return environ.get("PYTORCH_ALLOC_CONF") or environ.get("PYTORCH_CUDA_ALLOC_CONF") or None


def _commit(subject: Subject) -> str | None:
    folder = subject.around.folder
    if folder is None:
        return None
    for parent in (folder, *list(folder.parents)[:_MAX_FOLDERS_UP]):
        if (parent / ".git").exists():
            return _head(parent / ".git")
    return None


def _head(git: Path) -> str | None:
    if git.is_file():  # a worktree, or a submodule
        named = (file_text(git) or "").partition("gitdir:")[2].strip()
        git = git.parent / named
    head = (file_text(git / "HEAD") or "").strip()
    reference = head.partition("ref: ")[2]
    if not reference:
        return _shown(head)
    common = git / (file_text(git / "commondir") or ".").strip()
    for place in (git, common):
        if found := _shown((file_text(place / reference) or "").strip()):
            return found
    for line in (file_text(common / "packed-refs") or "").splitlines():
        commit, _, name = line.partition(" ")
        if name == reference:
            return _shown(commit)
    return None


def _shown(text: str) -> str | None:
    return text[:_SHOWN_DIGITS] if _COMMIT.fullmatch(text) else None


FACTS: dict[str, Reader] = {
    "version.python": lambda s: platform.python_version(),
    **{f"version.{name}": _imported(module) for name, module in _IMPORTED.items()},
    **{f"version.{name}": _installed(name) for name in _INSTALLED},
    "version.driver": _driver,
    "version.kernel": lambda s: platform.release(),
    **{f"env.{name}": _variable(name) for name in ENVIRONMENT},
    "allocator.settings": _allocator,
    **{fact: _variable(name) for fact, name in _SLURM.items()},
    "slurm.switch": _slurm_switch,
    "git.commit": _commit,
}
