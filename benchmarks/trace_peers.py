"""Reads a trace with another tool and asks it for its analyses; the last line says what it took.

    build/trace-peers/bin/python benchmarks/trace_peers.py hta FILE

Started by ``trace.py`` in a process of its own, in the environment that ``trace_peers_environment.py`` makes. Without a
file only the imports are done. Each tool is used as its documentation shows it, and draws nothing.
"""

import sys
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path

from trace_reading import Meter


def hta(path: str, meter: Meter) -> None:
    """HolisticTraceAnalysis, one rank. It leaves out the last step, as it does by default."""
    from hta.trace_analysis import TraceAnalysis

    meter.imported()
    if not path:
        return
    with meter.part("parse"):
        analysis = TraceAnalysis(trace_files={0: path})
    drawn: tuple[Callable[..., object], ...] = (
        analysis.get_gpu_kernel_breakdown,
        analysis.get_temporal_breakdown,
        analysis.get_idle_time_breakdown,
        analysis.get_comm_comp_overlap,
        analysis.get_cuda_kernel_launch_stats,
    )
    for method in drawn:
        meter.attempt(method.__name__, partial(method, visualize=False))
    meter.attempt("get_queue_length_summary", analysis.get_queue_length_summary)


def tb(path: str, meter: Meter) -> None:
    """The TensorBoard plugin: what it does for one worker before it shows its views, without a process for it."""
    from torch_tb_profiler.profiler.data import DistributedRunProfileData, RunProfileData
    from torch_tb_profiler.profiler.run_generator import DistributedRunGenerator, RunGenerator

    meter.imported()
    if not path:
        return
    with tempfile.TemporaryDirectory(prefix="trace-tb-") as cache:
        with meter.part("parse and analyse"):
            data = RunProfileData.parse("worker0", None, path, cache)
        meter.attempt("views", RunGenerator("worker0", None, data).generate_run_profile)

        def communication() -> None:
            profile = DistributedRunProfileData(data)
            if profile.has_communication:
                profile.communication_parse()
                DistributedRunGenerator([profile], None).generate_run_profile()

        meter.attempt("communication", communication)


def tracelens(path: str, meter: Meter) -> None:
    """AMD's TraceLens: the tables that its report begins with."""
    from TraceLens import TreePerfAnalyzer

    meter.imported()
    if not path:
        return
    with meter.part("parse"):
        analyzer = TreePerfAnalyzer.from_file(path)
    meter.attempt("get_df_gpu_timeline", analyzer.get_df_gpu_timeline)
    launchers = meter.attempt("get_df_kernel_launchers", analyzer.get_df_kernel_launchers)
    meter.attempt("get_df_kernel_launchers_summary", lambda: analyzer.get_df_kernel_launchers_summary(launchers))
    meter.attempt("get_df_kernels", analyzer.get_df_kernels)


READERS: dict[str, Callable[[str, Meter], None]] = {"hta": hta, "tb": tb, "tracelens": tracelens}


def main(reader: str, path: str = "") -> None:
    """Import, read, analyse, tell."""
    meter = Meter()
    READERS[reader](path and str(Path(path).resolve()), meter)  # HolisticTraceAnalysis takes no other
    meter.finish()


if __name__ == "__main__":
    main(*sys.argv[1:])
