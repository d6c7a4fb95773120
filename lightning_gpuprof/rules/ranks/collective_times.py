"""What rules on collectives share: the communication of a run, and how one of them is named."""

from lightning_gpuprof.model.collectives import CollectiveRun
from lightning_gpuprof.model.trace.communication import CollectiveTimes
from lightning_gpuprof.rules.base import Metrics, MissingSignal, NotApplicable, measured

MIB = 2**20


def collective_run(metrics: Metrics, *, with_earlier_work: bool = False) -> CollectiveRun | None:
    """The communication that the windows show.

    Args:
        metrics: The run.
        with_earlier_work: Also where all windows hold much work that was launched before them.

    Returns:
        None if there is only one rank, or the windows of a device hold no communication at all.

    Raises:
        NotApplicable: The ranks are on the CPU.
        MissingSignal: Too few steady steps, or no window with communication analysed.
    """
    metrics.require_steady()
    if metrics.is_distributed and metrics.is_cpu_only:
        raise NotApplicable("the model runs on the CPU: collectives of gloo are not in device traces")
    run = measured(metrics.collectives)
    if run is not None and run.has_earlier_work and not with_earlier_work:
        raise MissingSignal("no trace window has the device activity of whole steps")
    return run


def sized(one: CollectiveTimes) -> str:
    """A collective with its size: ``all_reduce of 25.0 MiB``; without one only its kind."""
    size = one.message_bytes
    if size is None:
        return one.kind
    unit, words = (MIB, "MiB") if size >= MIB / 10 else (1024, "KiB") if size >= 1024 else (1, "bytes")
    return f"{one.kind} of {size / unit:.3g} {words}"
