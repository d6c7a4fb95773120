"""Calls NVML's C functions and turns their failures into one of our few errors."""

import os
from functools import partial
from types import ModuleType
from typing import Any

from lightning_gpuprof.capture.nvml.backend import DriverGoneError, GpuLostError, NvmlError, UnsupportedError


class NoEventError(NvmlError):
    """Nothing happened while it was waited for, or an answer took too long."""


class Calls:
    """NVML through ``pynvml`` of the package nvidia-ml-py; opened by making one.

    Handles and the library's state belong to the process that opened them: in a child that was forked since, every
    call raises instead of touching them.

    Raises:
        DriverGoneError: No library or no driver on this machine, or nvidia-ml-py is not installed.
        NvmlError: The library refuses.
    """

    def __init__(self) -> None:
        try:
            import pynvml
        except ImportError as error:
            raise DriverGoneError(f"the package nvidia-ml-py cannot be imported ({error})") from error
        self.nvml: ModuleType = pynvml
        self._pid = os.getpid()
        self._error_classes: dict[int, type[NvmlError]] = {
            # Not permitted and "invalid argument" are lasting too: handles come from NVML itself, the other arguments
            # are constants, so the latter means that the query does not apply, e.g. power of a MIG device.
            pynvml.NVML_ERROR_NOT_SUPPORTED: UnsupportedError,
            pynvml.NVML_ERROR_FUNCTION_NOT_FOUND: UnsupportedError,
            pynvml.NVML_ERROR_INVALID_ARGUMENT: UnsupportedError,
            pynvml.NVML_ERROR_NO_PERMISSION: UnsupportedError,
            pynvml.NVML_ERROR_TIMEOUT: NoEventError,
            pynvml.NVML_ERROR_GPU_IS_LOST: GpuLostError,
            pynvml.NVML_ERROR_RESET_REQUIRED: GpuLostError,
            pynvml.NVML_ERROR_UNINITIALIZED: DriverGoneError,
            pynvml.NVML_ERROR_DRIVER_NOT_LOADED: DriverGoneError,
            pynvml.NVML_ERROR_LIBRARY_NOT_FOUND: DriverGoneError,
            pynvml.NVML_ERROR_LIB_RM_VERSION_MISMATCH: DriverGoneError,
        }
        # What some functions raise instead if the driver's library is older than the binding.
        mismatch: type[Exception] | None = getattr(pynvml, "NVMLLibraryMismatchError", None)
        self._mismatch: tuple[type[Exception], ...] = () if mismatch is None else (mismatch,)
        self.ask("nvmlInit")

    @property
    def is_own_process(self) -> bool:
        """Whether this is the process that opened NVML."""
        return os.getpid() == self._pid

    def ask(self, function: str, *arguments: object) -> Any:
        """Call a function of ``pynvml``.

        Raises:
            NvmlError: Or one of its subclasses; the text is the driver's reason.
        """
        if not self.is_own_process:
            raise DriverGoneError("NVML was opened before this process was forked")
        call = getattr(self.nvml, function, None)
        if call is None:
            raise UnsupportedError("unknown to this version of nvidia-ml-py")
        try:
            return call(*arguments)
        except self.nvml.NVMLError as error:
            raise self._error_classes.get(error.value, NvmlError)(str(error)) from error
        except self._mismatch as error:
            raise UnsupportedError("Function Not Found") from error
        except UnicodeDecodeError as error:  # the binding decodes names
            raise NvmlError("the answer is not text") from error


def uint(raw: int, bits: int = 32) -> float:
    """An answer as a number.

    Args:
        raw: What NVML wrote; all bits set is its "value not available".
        bits: Width of the answer's type.

    Returns:
        In NVML's unit.

    Raises:
        UnsupportedError: The value is not available.
    """
    if raw == (1 << bits) - 1:
        raise UnsupportedError("Not Available")
    return float(raw)


ulonglong = partial(uint, bits=64)


def text(raw: str | bytes) -> str:
    """A text; bindings before 11.525 gave bytes."""
    return raw.decode(errors="replace") if isinstance(raw, bytes) else raw
