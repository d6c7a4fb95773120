"""Finds that the container uses up its CPU quota and is held back."""

from __future__ import annotations

from dataclasses import dataclass

from lightning_gpuprof.model.finding import Evidence, Finding
from lightning_gpuprof.model.metrics import Metrics
from lightning_gpuprof.model.numbers import cpus, percent
from lightning_gpuprof.rules import claims
from lightning_gpuprof.rules.base import (
    BaseRule,
    MissingSignal,
    condition,
    gain,
    is_cpu_only,
    require_possible,
    severity,
    steady_period_ms,
    threshold,
    worthwhile,
)


@dataclass(frozen=True, kw_only=True)
class HostCpuQuota(BaseRule):
    """The control group of this process has a CPU quota, uses it up, and is stopped until the next period.

    ## What it means

    A container with a quota of 2 CPUs may still see all CPUs of the machine. More threads and workers than the quota
    use it up before the period of 100 ms ends; then all of them stop, the main thread with them, and steps stutter.

    ## How it is measured

    The kernel counts the quota's periods and those in which it was used up (`cpu.stat`), sampled during the steps. The
    share of such periods must pass 10 %, over at least 50 periods. The severity goes by the time that the group was
    held back at least: the CPU seconds held back per second are a sum over the CPUs on which the group was stopped, so
    over all CPUs of the machine they are the least part of the time. The gain is at most R = T * min(share of periods,
    CPU seconds held back per second), at least that part of T; where the number of CPUs is not known, 0.

    A thread that is held back is one that waits for a CPU: this shares the time of `cpu-contention`, and the gain is
    counted once.

    ## When it is wrong

    - Other processes of the same group use the quota as well: what is held back may be theirs.
    - Of several groups one above the other the smallest quota is read; a larger one above may bind first.
    - No quota: silent. No counters (cgroup files not readable), fewer than 50 periods (5 s): not evaluated.

    ## What to do

    Ask for a larger quota; or use fewer threads and workers than it allows: `torch.set_num_threads`, `num_workers`.

    ## Example

    A quota of 2 CPUs, 4 workers: "The quota of 2 CPUs was used up in 62 % of 480 periods."
    """

    id = "host-cpu-quota"
    title = "The container uses up its CPU quota"

    least_ratio: float = threshold(0.10, source="catalogue, heuristic: a tenth of the periods")
    least_periods: float = threshold(50, source="catalogue, heuristic: five seconds")

    def check(self, metrics: Metrics) -> Finding | None:
        """Judge the quota's counters."""
        period_ms = steady_period_ms(metrics)
        group = metrics.host.cgroup
        if group is None or group.quota_cpus is None:
            if metrics.host.samples == 0:
                raise MissingSignal("the host was not sampled")
            return None
        if group.throttled_ratio is None or group.periods_count is None or group.throttled_cpus is None:
            raise MissingSignal("the counters of the CPU quota were not readable")
        require_possible("a counter of the CPU quota", group.throttled_ratio, group.periods_count, group.throttled_cpus)
        if group.periods_count < self.least_periods:
            raise MissingSignal(f"{group.periods_count:.0f} periods of the quota, {self.least_periods:.0f} are needed")
        held_ratio = min(1.0, group.throttled_ratio, group.throttled_cpus)
        if group.throttled_ratio < self.least_ratio or not worthwhile(held_ratio * period_ms, period_ms):
            return None
        quota = cpus(group.quota_cpus)
        machine_cpus = condition(metrics, "cpu.count")
        least_ratio = 0.0
        if isinstance(machine_cpus, int) and machine_cpus > 0:
            least_ratio = min(held_ratio, group.throttled_cpus / machine_cpus)
        return self.finding(
            severity=severity(least_ratio, metrics.steps.steady_count),
            subject="control group",
            summary=(
                f"The quota of {quota} was used up in {percent(group.throttled_ratio)} of {group.periods_count:,.0f} "
                f"periods, which held this run back by {cpus(group.throttled_cpus)}."
            ),
            advice=_advice(metrics, quota_cpus=group.quota_cpus, held_cpus=group.throttled_cpus),
            evidence=(
                self.evidence("least_ratio", group.throttled_ratio, "periods in which the quota was used up"),
                self.evidence("least_periods", group.periods_count, "periods"),
                Evidence(name="held back", value=group.throttled_cpus, unit="CPUs"),
                Evidence(name="quota", value=group.quota_cpus, unit="CPUs"),
            ),
            gain=gain(held_ratio * period_ms, least_ratio * period_ms, period_ms),
            confidence=0.7,
            explains=claims.NO_CPU,
        )


def _advice(metrics: Metrics, *, quota_cpus: float, held_cpus: float) -> str:
    workers = metrics.loader.num_workers if metrics.loader is not None else None
    threads = condition(metrics, "torch.num_threads")
    used = [f"num_workers is {workers}"] if workers is not None else []
    used += [f"torch has {threads} threads"] if isinstance(threads, int) else []
    fitting = _fitting(metrics, workers, threads, room=int(quota_cpus))
    keep = f", or keep workers and threads together within {cpus(quota_cpus)}: {' and '.join(fitting)}"
    keep += f" ({'; '.join(used) or 'neither known'})"
    return (
        f"Raise the quota by {cpus(held_cpus)} to {cpus(quota_cpus + held_cpus)} (Kubernetes: resources.limits.cpu; "
        f"Docker: --cpus){keep if fitting else ''}."
    )


def _fitting(metrics: Metrics, workers: int | None, threads: object, *, room: int) -> list[str]:
    """What to set so that workers and threads fit: a model on a CPU needs the threads, one on a device does not."""
    fewer = max(1, room - 1)
    on_cpu = is_cpu_only(metrics)
    kept = min(workers or 0, fewer) if on_cpu or workers is not None else fewer
    left = max(1, room - kept) if on_cpu else 1
    return [
        *([f"DataLoader(..., num_workers={kept})"] if kept != (workers or 0) else []),
        *([f"torch.set_num_threads({left})"] if not isinstance(threads, int) or threads > left else []),
    ]
