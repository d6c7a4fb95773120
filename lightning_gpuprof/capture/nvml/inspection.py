"""Reads facts and present values of this machine's GPUs, and why something is missing.

Run as a program it prints them as JSON; :func:`inspect_in_child` starts that program, so that a driver that hangs costs
a child and not the caller.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import subprocess
import sys
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING

import msgspec

from lightning_gpuprof.capture.nvml.backend import (
    ERROR_COUNTERS,
    LABELS,
    VALUES,
    DriverGoneError,
    GpuLostError,
    NvmlDevice,
    NvmlError,
)
from lightning_gpuprof.capture.nvml.visible_gpus import select_devices
from lightning_gpuprof.errors import GpuProfError
from lightning_gpuprof.model.journal import Value

if TYPE_CHECKING:
    from lightning_gpuprof.capture.nvml.driver import PynvmlBackend

_SAMPLE_INTERVAL_S = 0.2
"""The performance counters need two samples."""

LIBRARY = "libnvidia-ml.so.1"
"""As nvidia-ml-py opens it."""
MODULE = "lightning_gpuprof.capture.nvml.inspection"


class ListedProcess(msgspec.Struct, kw_only=True, frozen=True):
    """A process that has a compute context on a GPU."""

    pid: int
    name: str = ""
    """Of its program, without folder; empty if the driver does not say."""
    memory_bytes: float | None = None


class GpuState(msgspec.Struct, kw_only=True, frozen=True):
    """One GPU, or one MIG device."""

    index: int
    name: str
    uuid: str
    subject: str = ""
    """``gpu0`` if processes with this environment see it; else empty."""
    partitioned: bool = False
    facts: dict[str, Value] = {}
    values: dict[str, float | None] = {}
    absent: dict[str, str] = {}
    """What is not measured → the driver's reason."""
    processes: tuple[ListedProcess, ...] = ()
    lost: str = ""
    """Why it does not answer at all."""


class MachineGpus(msgspec.Struct, kw_only=True, frozen=True):
    """All GPUs, or why there are none."""

    gpus: tuple[GpuState, ...] = ()
    problems: tuple[str, ...] = ()
    absent: str = ""
    """Why NVML cannot be used at all."""
    hangs: bool = False
    """The driver did not answer in time."""


def inspect_in_child(timeout_s: float = 20.0) -> MachineGpus:
    """Read the GPUs in a child process: a driver that takes longer than ``timeout_s`` hangs.

    Without the driver's library no child is started: to open it asks the driver nothing.
    """
    try:
        ctypes.CDLL(LIBRARY)
    except OSError:
        return MachineGpus(absent=f"no driver ({LIBRARY} was not found)")
    child = subprocess.Popen(
        [sys.executable, "-m", MODULE], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    try:
        out, err = child.communicate(timeout=timeout_s)
    except subprocess.TimeoutExpired:
        child.kill()  # and not waited for: a process in an uninterruptible driver call does not end by it
        for pipe in (child.stdout, child.stderr):
            if pipe is not None:
                pipe.close()
        return MachineGpus(absent=f"the driver did not answer within {timeout_s:.0f} s", hangs=True)
    try:
        return msgspec.json.decode(out, type=MachineGpus)
    except msgspec.MsgspecError:
        last = err.decode(errors="replace").strip().splitlines()[-1:]
        return MachineGpus(absent=f"the child that reads NVML ended with code {child.returncode}: {''.join(last)}")


def inspect(environ: Mapping[str, str]) -> MachineGpus:
    """Read the GPUs in this process; the environment says which of them processes see."""
    from lightning_gpuprof.capture.nvml.driver import PynvmlBackend  # only the child needs it

    try:
        backend = PynvmlBackend()
    except NvmlError as error:
        return MachineGpus(absent=str(error))
    try:
        devices = backend.devices()
        selection = select_devices(devices, None, environ)
        subjects = {device.uuid: subject for subject, device in selection.devices}
        every = [each for device in devices for each in (device, *device.mig_devices)]
        gpus = tuple(_gpu(backend, device, subjects.get(device.uuid, "")) for device in every)
        return MachineGpus(gpus=gpus, problems=selection.problems)
    except NvmlError as error:
        return MachineGpus(absent=str(error))
    finally:
        with contextlib.suppress(NvmlError):  # gone meanwhile: what was seen stands
            backend.close()


def _gpu(backend: PynvmlBackend, device: NvmlDevice, subject: str) -> GpuState:
    values: dict[str, float | None] = {}
    absent: dict[str, str] = {}
    facts: Mapping[str, Value] = {}
    processes: tuple[ListedProcess, ...] = ()
    lost = ""
    try:
        facts = backend.facts(device)
        _read(backend, device, values, absent)
        processes = _processes(backend, device)
    except GpuLostError as error:
        lost = str(error)
    return GpuState(
        index=device.index,
        name=device.name,
        uuid=device.uuid,
        subject=subject,
        partitioned=device.mig_mode,
        facts=dict(facts),
        values=values,
        absent=absent,
        processes=processes,
        lost=lost,
    )


def _read(backend: PynvmlBackend, device: NvmlDevice, values: dict[str, float | None], absent: dict[str, str]) -> None:
    for query, names in VALUES.items():
        try:
            answer = backend.read(device, query)
            if not answer:  # it needs two samples
                time.sleep(_SAMPLE_INTERVAL_S)
                answer = backend.read(device, query)
            values.update(zip(names, answer, strict=False))
        except (GpuLostError, DriverGoneError):
            raise
        except NvmlError as error:
            if query not in ERROR_COUNTERS:
                absent[LABELS[query]] = str(error)


def _processes(backend: PynvmlBackend, device: NvmlDevice) -> tuple[ListedProcess, ...]:
    try:
        listed = backend.process_list(device)
    except (GpuLostError, DriverGoneError):
        raise
    except NvmlError:
        return ()  # that they are not listed stands with the values
    found: list[ListedProcess] = []
    for process in listed:
        try:
            name = os.path.basename(backend.process_name(process))  # noqa: PTH119 - a name, not a path here
        except NvmlError:
            name = ""
        found.append(ListedProcess(pid=process.pid, name=name, memory_bytes=process.memory_bytes))
    return tuple(found)


def main() -> None:
    """Print the state of this machine's GPUs."""
    try:
        found = inspect(os.environ)
    except GpuProfError as error:
        found = MachineGpus(absent=str(error))
    sys.stdout.buffer.write(msgspec.json.encode(found))


if __name__ == "__main__":
    main()
