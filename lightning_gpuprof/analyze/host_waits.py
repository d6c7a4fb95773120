"""The host's waits for the device in a window, by who makes the host wait."""

import re
from collections.abc import Mapping

from lightning_gpuprof.model.device_step import ExplainedStep, HostWaits, Wait, WaitCause
from lightning_gpuprof.model.metrics import Metrics
from lightning_gpuprof.model.missing import Unmeasured
from lightning_gpuprof.model.phases import COMPUTE_PHASES
from lightning_gpuprof.model.trace.sync_points import SyncSite

LEAST_PER_STEP = 0.5
"""Waits per step from which a place belongs to the ordinary step rather than to logging now and then. Heuristic."""

_PROGRESS_BAR = re.compile(r"\[Callback\]\w*ProgressBar\w*\.")
_OPTIMIZER_STEP = re.compile(r"\]\w+\.optimizer_step$")
"""Around the scaler and the optimizer; what the optimizer itself reads is in torch's ``Optimizer.step#`` within."""
_CALLBACK = re.compile(r"\[Callback\](?P<hook>[\w.]+)")
_MODULE_HOOK = re.compile(r"\[Lightning(?:Data)?Module\](?P<hook>[\w.]+)")
_READS = frozenset({"aten::item", "aten::_local_scalar_dense", "aten::is_nonzero"})


def host_waits(metrics: Metrics, step: ExplainedStep) -> Mapping[WaitCause, HostWaits] | Unmeasured:
    """The host's waits in ordinary steps.

    Args:
        metrics: The run.
        step: Its device's step; its own ``waits`` are not read.

    Returns:
        By cause, of those that occur, the costliest wait first; costs in ms per step. Unmeasured if the sync points of
        the window could not be computed.
    """
    points = step.analysis.sync_points
    if points is None:
        return Unmeasured(why="the sync points of the trace window could not be computed")
    found: dict[WaitCause, list[Wait]] = {}
    for site in points.sites:
        per_step = site.count / step.steps if site.count_per_step is None else site.count_per_step
        if site.count < 1 or per_step < LEAST_PER_STEP:
            continue
        in_steps_us = site.cost_us * min(1.0, per_step * step.steps / site.count)
        cost_ms = step.estimate_ms(in_steps_us / 1e3 / step.steps)
        wait = Wait(site=site, where=_where(site), per_step=per_step, cost_ms=cost_ms)
        found.setdefault(_cause(metrics, site), []).append(wait)
    return {
        cause: HostWaits(
            period_ms=step.period_ms,
            waits=tuple(sorted(waits, key=lambda wait: -wait.cost_ms)),
            lower_ms=step.lower_ms(sum(wait.cost_ms for wait in waits)),
            blocked_ms=sum(wait.site.blocked_us for wait in waits) / 1e3 / step.steps,
        )
        for cause, waits in found.items()
    }


def _cause(metrics: Metrics, site: SyncSite) -> WaitCause:
    if _PROGRESS_BAR.search(site.annotation or ""):
        return "progress bar"
    if metrics.is_distributed and _is_upload_of_rank_check(metrics, site):
        return "rank check"
    if site.copy is not None and "HtoD" in site.copy:
        return "host tensor" if site.phase in COMPUTE_PHASES else "batch upload"
    if site.operation not in _READS:
        return "code"
    scales_gradients = str(metrics.condition("trainer.precision") or "").startswith("16")
    if scales_gradients and _OPTIMIZER_STEP.search(site.annotation or ""):
        return "gradient scaler"
    by_loop = site.phase in (None, "sync") and site.annotation is None and site.inside is None
    return "rank check" if by_loop and metrics.is_distributed else "code"


def _is_upload_of_rank_check(metrics: Metrics, site: SyncSite) -> bool:
    """Whether it is the copy of the check's tensor: Lightning moves all else to the device inside of named actions."""
    if site.copy is None or "HtoD" not in site.copy or metrics.condition("version.lightning") is None:
        return False
    return site.phase not in COMPUTE_PHASES and site.annotation is None and site.inside is None and site.line is None


def _where(site: SyncSite) -> str:
    hook = _CALLBACK.search(site.annotation or "")
    if hook is not None:
        return hook["hook"]
    if site.line is not None:
        return site.line.frame
    hook = _MODULE_HOOK.search(site.annotation or "")
    if hook is not None:
        return hook["hook"]
    around = site.module or site.annotation or site.inside or site.phase
    return f"{site.operation} in {around.removeprefix('[pl][profile]')}" if around else site.operation
