"""What a finished run gives its own program: the report as plain data, frames and a page."""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, overload

import msgspec

from lightning_gpuprof.errors import ArgumentError, ReportError

if TYPE_CHECKING:
    from lightning_gpuprof.model.phases import Phase
    from lightning_gpuprof.model.report import Report
    from lightning_gpuprof.sinks.notebook import WholePage

_COMPUTES: tuple[Phase, ...] = ("forward", "backward", "optimizer")


class Results:
    """What a ``GpuProfiler`` gives of its last run: on rank 0, after ``fit``."""

    report: Report | None = None
    """The report of the last ``fit``; None before."""
    folder: Path | None = None
    """Where the last ``fit`` was recorded."""

    def summary(self) -> dict[str, str | float | None]:
        """The last run in a dozen values, to print or to put into a table.

        Returns:
            ``verdict``; ``baseline_ms``, the median step time, and of it ``data_loading_ms``, ``forward_ms``,
            ``backward_ms``, ``optimizer_ms`` and ``computation_ms``, these three together; ``samples_per_s``;
            ``speedup_max``, of the whole run by all findings together, at most; ``gpu_utilization`` of 0 to 1;
            ``peak_gb`` (10^9 bytes, on a CPU of the process), ``parameters_gb``; ``fragmentation_ratio`` of 0 to 1.
            None for what was not measured.

        Raises:
            ReportError: There is no report yet.
        """
        report = self._last_report()
        phase_ms = {row.phase: row.median_ms for row in report.phases}
        computes = [phase_ms.get(name) for name in _COMPUTES]
        memory = report.memory.devices[0] if report.memory.devices else None
        peak = report.memory.process_rss_peak_bytes if memory is None else memory.allocated_peak_bytes
        parameters = report.run.get("model.parameter_bytes")
        return {
            "verdict": report.verdict.kind,
            "baseline_ms": None if report.steps.period_ms is None else report.steps.period_ms.median,
            "data_loading_ms": phase_ms.get("data_wait"),
            "computation_ms": None if None in computes else sum(ms for ms in computes if ms is not None),
            **{f"{name}_ms": ms for name, ms in zip(_COMPUTES, computes, strict=True)},
            "samples_per_s": report.steps.samples_per_s,
            "speedup_max": None if report.combined is None else report.combined.run_speedup_max,
            "gpu_utilization": report.devices[0].median("utilization_ratio") if report.devices else None,
            "peak_gb": None if peak is None else peak / 1e9,
            "parameters_gb": parameters / 1e9 if isinstance(parameters, (int, float)) else None,
            "fragmentation_ratio": None if memory is None else memory.fragmentation_ratio,
        }

    @overload
    def phases(self, *, as_frame: Literal[False] = False) -> list[dict[str, str | float | None]]: ...

    @overload
    def phases(self, *, as_frame: Literal[True]) -> Any: ...

    def phases(self, *, as_frame: bool = False) -> Any:
        """The phases of a step of the last run as plain data.

        Args:
            as_frame: Give a pandas ``DataFrame``; pandas is no dependency of this package.

        Returns:
            A dict (or row) per phase: ``phase``, ``median_ms``, ``p95_ms``, ``total_s``, ``share`` of 0 to 1,
            ``device_ms``, ``cpu_ms``; None (in a frame ``NaN``) for what was not measured.

        Raises:
            ReportError: There is no report yet.
            ArgumentError: A frame is wanted, and pandas is not installed.
        """
        return _rows(self._last_report().phases, as_frame=as_frame)

    @overload
    def modules(self, *, as_frame: Literal[False] = False) -> list[dict[str, Any]]: ...

    @overload
    def modules(self, *, as_frame: Literal[True]) -> Any: ...

    def modules(self, *, as_frame: bool = False) -> Any:
        """The model's modules in the last trace window that has them, outer modules before those in them.

        Args:
            as_frame: Give a pandas ``DataFrame``; pandas is no dependency of this package.

        Returns:
            A dict (or row) per module: ``path`` with names as in ``named_modules()``, the outermost first (by class,
            ``Linear_0``, where only stacks name them); ``calls`` in the window; microseconds in the window, with those
            of the modules within it: ``host_us`` of forward, ``backward_host_us``, ``device_us`` of both and its part
            ``backward_us``; without them ``own_host_us``, ``own_us``; ``host_ratio`` and ``device_ratio`` of the steps;
            ``parameters`` with those of the modules within it. Empty if no window has modules.

        Raises:
            ReportError: There is no report yet.
            ArgumentError: A frame is wanted, and pandas is not installed.
        """
        analyses = [window.analysis for window in self._last_report().windows if window.analysis is not None]
        found = [one.attribution.modules for one in analyses if one.attribution is not None and one.attribution.modules]
        return _rows(found[-1] if found else (), as_frame=as_frame)

    def op_analyse(self, names: str | Sequence[str], *, window: int = -1) -> str:
        """What operators did in a trace window of the last run, as MindSpore's ``op_analyse`` gives it.

        Args:
            names: One or more operators, such as ``"aten::mm"``.
            window: Which of the windows that have a trace: 0 is the first one, -1 the last one.

        Returns:
            JSON: a list with one object per operator, side, phase and shape of inputs; times in microseconds.

        Raises:
            TraceError: There is no such trace.
            ArgumentError: No operator of the trace has one of the names; a ``ValueError``.
        """
        from lightning_gpuprof.trace.analyses.operators.op_analyse import op_analyse_window

        return op_analyse_window(self.folder, names, window)

    def page(self) -> WholePage:
        """The whole page of the last run with its figures, for a notebook's cell; ``report`` is the small one.

        Raises:
            ReportError: There is no report yet.
        """
        shown: WholePage = import_module("lightning_gpuprof.sinks.notebook").WholePage(self._last_report())
        return shown

    def _last_report(self) -> Report:
        if self.report is None:
            raise ReportError("there is no report yet: it is made at the end of fit, on rank 0")
        return self.report


def _rows(rows: Sequence[msgspec.Struct], *, as_frame: bool) -> Any:
    found = [msgspec.structs.asdict(row) for row in rows]
    if not as_frame:
        return found
    try:
        return import_module("pandas").DataFrame(found)
    except ImportError:
        hint = "Install pandas, or make a frame of the list."
        raise ArgumentError("as_frame", True, "be False, because pandas is not installed", hint) from None
