"""What a CUDA or HIP call makes the host wait for, by its name."""

from __future__ import annotations

import re

_SYNCHRONISES = re.compile(
    r"^(cuda|hip)(Device|Stream|Event|Thread)Synchronize"
    r"|^(cu|hip)(Ctx|Stream|Event)Synchronize"
    r"|^(cuda|cu|hip)Memcpy(?!.*Async)"
)
"""Copies without ``Async`` return when they are done; PyTorch on ROCm copies with ``hipMemcpyWithStream``."""

_ALLOCATES = re.compile(
    r"^(cuda|hip)(Ext|Host)?(Malloc|Free|Alloc)"
    r"|^cuMem(Host)?(Alloc|Free)"
    r"|^(cu|hip)Mem(Create|Release|Map|Unmap|SetAccess|AddressReserve|AddressFree)"
    r"|^(cuda|hip|cuMem)Host(Register|Unregister)"
)
"""Also the calls by which expandable segments map memory, and page-locking of host memory."""

_PAGEABLE = re.compile(r"\bPageable\b", re.IGNORECASE)


def synchronises(call_name: str) -> bool:
    """Whether the host waits in this call until the device, a stream or an event is done.

    Asynchronous copies of pageable memory wait too, which only the copy's name tells: see :func:`copies_pageable`.
    """
    return _SYNCHRONISES.search(call_name) is not None


def copies_pageable(work_name: str) -> bool:
    """Whether a copy, by its name such as ``Memcpy DtoH (Device -> Pageable)``, holds the host that launched it.

    CUDA stages pageable memory, and a call that copies to it returns when the copy is done (CUDA Runtime API, "API
    synchronization behavior").
    """
    return _PAGEABLE.search(work_name) is not None


def allocates(call_name: str) -> bool:
    """Whether the call takes memory of device or page-locked host from the driver, or gives it back."""
    return _ALLOCATES.search(call_name) is not None
