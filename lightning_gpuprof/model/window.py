"""The facts of one trace window, as the analysis of its trace gives them."""

import msgspec

from lightning_gpuprof.model.trace.analysis import TraceAnalysis
from lightning_gpuprof.model.trace.api_tables import MemorySizeRow

MAX_UNMATCHED_RATIO = 0.1
"""Share of device work launched outside a window from which its busy time per step is not trusted. Heuristic."""


class DeviceActivity(msgspec.Struct, kw_only=True, frozen=True):
    """Activity of one device inside the window, microseconds. ``busy_us + idle_us = window_us``."""

    device: str
    kernels: int
    window_us: float
    """First start to last end of device work."""
    busy_us: float
    """Union of kernels and copies over all streams."""
    idle_us: float
    """The rest of the window."""


class OperatorRow(msgspec.Struct, kw_only=True, frozen=True):
    """One operator or kernel name: occurrences and total time, microseconds."""

    name: str
    count: int
    """How often it ran."""
    total_us: float


class WindowFacts(msgspec.Struct, kw_only=True, frozen=True):
    """What was seen in one window; ``problem`` says why there is no trace or what is missing in it."""

    start_step: int
    stop_step: int
    """Included."""
    file: str = ""
    """Name of the trace in the run's folder; empty if there is none."""
    problem: str = ""
    """What is missing; empty if all is well."""
    reason: str = ""
    """Why the window was opened: ``planned``, ``steady``, ``every_n_steps``, ``slow step: …``, ``requested by …``."""
    inflation_ratio: float | None = None
    """Median time of the window's steps over that of steady untraced ones beside it: how much times are inflated."""
    events: int = 0
    """Entries of the trace."""
    bytes_json: int = 0
    """Size of the trace, decompressed."""
    steps_us: tuple[float, ...] = ()
    """Durations of the ``ProfilerStep#`` ranges; inflated by profiling."""
    dataloader_us: float = 0.0
    """Time of the ranges in which a batch was fetched."""
    dataloader_beside_device_us: float | None = None
    """The part of ``dataloader_us`` between the first and the last work of the busiest device. None without a
    device."""
    kernels: int = 0
    """Pieces of device work other than copies."""
    launches_matched: int = 0
    """Device events whose launch is in the trace."""
    launches_unmatched: int = 0
    """Device events launched before the window, or whose launch was lost."""
    devices: tuple[DeviceActivity, ...] = ()
    top_operators: tuple[OperatorRow, ...] = ()
    """By exclusive host time, largest first."""
    top_kernels: tuple[OperatorRow, ...] = ()
    """By time on the device, largest first."""
    analysis: TraceAnalysis | None = None
    """Everything else that was computed, with the first rows of each table; ``gpuprof trace FILE`` gives all."""
    stop_cost_ms: float | None = None
    """What closing the window cost the main thread."""

    @property
    def results(self) -> TraceAnalysis:
        """The analysis; one without any result where there is none."""
        return self.analysis or TraceAnalysis()

    @property
    def is_on_slow_step(self) -> bool:
        """Whether the window was opened because a step was slow, so that it shows no ordinary steps."""
        return self.reason.startswith("slow step")

    def host_ms_per_step(self, operator: str) -> float:
        """Host time per step of operators with this in their names, inflated by tracing; 0 if there are none."""
        operators = self.results.operators
        rows = [row for row in operators.operators if operator in row.operator] if operators is not None else []
        return sum(row.host_total_us for row in rows) / 1e3 / max(1, len(self.steps_us))

    def pinned_copies(self, least_count: int, least_bytes: float) -> MemorySizeRow | None:
        """Large copies of pinned memory to the device.

        Args:
            least_count: As many bytes as so many of the largest.
            least_bytes: Of a copy on average.

        Returns:
            Their row in the table of sizes; None if the window has no such, or no steps.
        """
        tables = self.results.api_tables
        for row in tables.cuda_gpu_mem_size_sum if tables is not None and self.steps_us else ():
            enough = row.sized_count == row.count >= least_count
            large = (row.total_bytes or 0) >= least_count * (row.max_bytes or 0)
            if "HtoD (Pinned" in row.name and enough and large and (row.average_bytes or 0.0) >= least_bytes:
                return row
        return None

    @property
    def device_work(self) -> int:
        """Kernels, copies and memsets."""
        return self.launches_matched + self.launches_unmatched

    @property
    def has_earlier_work(self) -> bool:
        """Whether much of the device work was launched before the window, so that it is not that of its steps."""
        return self.launches_unmatched > MAX_UNMATCHED_RATIO * self.device_work
