"""The communication of a run of several ranks, from its trace windows."""

from lightning_gpuprof.model.collectives import CollectiveRun, CollectiveWindow
from lightning_gpuprof.model.device_kernels import is_ordinary
from lightning_gpuprof.model.metrics import Metrics
from lightning_gpuprof.model.missing import Unmeasured
from lightning_gpuprof.model.window import WindowFacts


def collectives(metrics: Metrics) -> CollectiveRun | Unmeasured | None:
    """The communication that the windows show; None: there is only one rank, or the windows of a device hold none."""
    period_ms = metrics.period_ms
    if not metrics.is_distributed or not period_ms:
        return None
    known = [facts for facts in metrics.windows if _is_analysed(facts)]
    seen = [facts for facts in known if is_ordinary(facts)] or known
    if not seen:
        return Unmeasured(why="no trace window has the device activity of whole steps")
    windows = tuple(
        CollectiveWindow(
            facts=facts,
            communication=facts.analysis.communication,
            steps=_steps(facts, period_ms),
            in_one_node=metrics.run.get("trainer.num_nodes") == 1,
        )
        for facts in seen
        if facts.analysis is not None
        and facts.analysis.communication is not None
        and any(one.collectives for one in facts.analysis.communication.devices)
    )
    if len(windows) != len(seen):
        return None
    return CollectiveRun(
        period_ms=period_ms,
        ranks=metrics.positive("trainer.world_size") or 2,
        windows=windows,
        has_earlier_work=not any(map(is_ordinary, seen)),
    )


def _is_analysed(facts: WindowFacts) -> bool:
    analysis = facts.analysis
    return (
        analysis is not None
        and analysis.communication is not None
        and bool(facts.steps_us)
        and bool(analysis.communication.devices)
        and not facts.is_on_slow_step
    )


def _steps(facts: WindowFacts, period_ms: float) -> float:
    if not facts.has_earlier_work:
        return len(facts.steps_us)
    return max(device.window_us for device in facts.devices) / 1e3 / period_ms
