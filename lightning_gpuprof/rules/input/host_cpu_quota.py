"""The container uses up its CPU quota and is throttled until the next interval.

## What it means
A container with a quota of 2 CPUs may still see all CPUs of the machine. With more threads and workers than the quota,
it is used up before the interval of 100 ms ends. Then all threads stop until the next one, the main thread with them,
and steps stutter.

## How it is measured
The kernel counts intervals and throttled intervals (`nr_periods` and `nr_throttled` of `cpu.stat`). The throttled share
must pass 10 %, over at least 50 intervals. The throttled CPU seconds per second are a sum over all CPUs: divided by the
CPUs of the machine, they are the least time lost, which decides the severity. N CPUs need a share Q / N of an interval
to use up a quota of Q, so the gain is at most R = T * min(throttled share * (1 - Q / N), throttled CPU seconds per
second). A throttled thread waits for a CPU: `cpu-contention` has the same time, and the gain is counted once.

## When it is wrong
- Other processes of the same group use the quota as well: what is held back may be theirs.
- Of several groups one above the other the smallest quota is read; a larger one above may bind first.
- Counters that cannot be read, fewer than 50 intervals (5 s): not evaluated.

## What to do
Ask for a larger quota; or use fewer threads and workers than it allows: `torch.set_num_threads`, `num_workers`.
"""

from lightning_gpuprof.model.numbers import counted, cpus
from lightning_gpuprof.model.signals import require_possible
from lightning_gpuprof.rules.base import Advice, BaseRule, Finding, Metrics, MissingSignal, claims, percent, threshold
from lightning_gpuprof.rules.examples import fires, looks_alike, not_evaluated, quiet
from lightning_gpuprof.rules.steps.contention import fitting_change

_USED_UP = {"quota": {}, "run": {"cpu.count": 4}}


def _on(device: str, workers: int, threads: int = 8) -> dict[str, object]:
    run = {"cpu.count": 4, "device.type": device, "torch.num_threads": threads}
    return {"quota": {"cpus": 8.0}, "num_workers": workers, "run": run}


class HostCpuQuota(BaseRule):
    id = "host-cpu-quota"
    title = "The container uses up its CPU quota"

    least_ratio: float = threshold(0.10, source="heuristic: a tenth of the intervals")
    least_periods: float = threshold(50, source="heuristic: five seconds")

    examples = (
        fires("2 CPUs in 60 %", "warning", "60 % of 480 ... quota to 2.5 CPUs", saves_ms=15.0, **_USED_UP),
        fires("the machine has no more CPUs", "critical", "Raise the quota", quota={}, run={"cpu.count": 2}),
        fires("the machine has 8 CPUs", "info", "Raise the quota", quota={}, run={"cpu.count": 8}),
        fires("the number of CPUs is not known", "info", "Raise the quota", quota={}),
        fires("a tenth of the intervals", "info", "10 %", **{**_USED_UP, "quota": {"ratio": 0.1}}),
        fires(
            "a model computes on 8 threads",
            "warning",
            ": torch.set_num_threads(6). Now: 2 workers and 8 torch threads.",
            **_on("cpu", 2),
        ),
        fires("it has 9 workers", "warning", "num_workers=7) and torch.set_num_threads(1).", **_on("cpu", 9)),
        fires("8 threads beside a GPU", "warning", ": torch.set_num_threads(1).", **_on("cuda", 2)),
        fires("one thread beside a GPU", "warning", "Docker: --cpus).", lacks="Or ", **_on("cuda", 2, threads=1)),
        quiet("fewer intervals", **{**_USED_UP, "quota": {"ratio": 0.09}}),
        quiet("there is no quota", quota={"cpus": None}),
        looks_alike("little is lost in many intervals", **{**_USED_UP, "quota": {"held": 0.02}}),
        not_evaluated("the host was not sampled", "was not sampled", quota={"cpus": None, "samples": 0}),
        not_evaluated("the counters cannot be read", "counters", quota={"ratio": None}),
        not_evaluated("there are few intervals", "49 intervals of the quota, 50 are needed", quota={"periods": 49.0}),
    )

    def check(self, metrics: Metrics) -> Finding | None:
        step_ms = metrics.step_ms
        group = metrics.host.cgroup
        if group is None or group.quota_cpus is None:
            if metrics.host.samples == 0:
                raise MissingSignal("the host was not sampled")
            return None
        if group.throttled_ratio is None or group.periods_count is None or group.throttled_cpus is None:
            raise MissingSignal("the counters of the CPU quota were not readable")
        require_possible("a counter of the CPU quota", group.throttled_ratio, group.periods_count, group.throttled_cpus)
        if group.periods_count < self.least_periods:
            raise MissingSignal(
                f"{group.periods_count:.0f} intervals of the quota, {self.least_periods:.0f} are needed"
            )
        machine_cpus = metrics.positive("cpu.count")
        running = group.quota_cpus / machine_cpus if machine_cpus and machine_cpus > group.quota_cpus else 0.0
        held_ratio = min(group.throttled_ratio * (1.0 - running), group.throttled_cpus, 1.0)
        certain_ratio = min(held_ratio, group.throttled_cpus / machine_cpus) if machine_cpus else 0.0
        cost = metrics.cost(held_ratio * step_ms, certain_ratio * step_ms)
        if group.throttled_ratio < self.least_ratio or not cost.is_worth():
            return None
        return self.finding(
            subject="control group",
            summary=f"The container was throttled in {percent(group.throttled_ratio)} of {group.periods_count:,.0f} "
            f"intervals, at its quota of {cpus(group.quota_cpus)}. That cost this run {cpus(group.throttled_cpus)}.",
            advice=_fit(metrics, group.quota_cpus, group.throttled_cpus),
            evidence=(
                self.evidence("least_ratio", group.throttled_ratio, "intervals in which the quota was used up"),
                self.evidence("least_periods", group.periods_count, "intervals of the quota"),
                self.fact("lost to the quota", group.throttled_cpus, "CPUs"),
                self.fact("quota", group.quota_cpus, "CPUs"),
            ),
            cost=cost,
            confidence=0.7,
            explains=claims.NO_CPU,
        )


def _fit(metrics: Metrics, quota_cpus: float, held_cpus: float) -> Advice:
    """Raise the quota, or fit into it: a model on a CPU needs the threads, one on a device does not."""
    room, on_cpu = int(quota_cpus), metrics.is_cpu_only
    workers, threads = metrics.num_workers, metrics.positive("torch.num_threads")
    fewer = max(1, room - 1)
    kept = min(workers or 0, fewer) if on_cpu or workers is not None else fewer
    change = fitting_change(workers=workers, kept=kept, threads=threads, left=max(1, room - kept) if on_cpu else 1)
    where = "(Kubernetes: resources.limits.cpu; Docker: --cpus)"
    raised = f"Raise the quota to {cpus(quota_cpus + held_cpus)} {where}."
    if not change.added:
        return raised, None
    used = [counted(workers, "worker")] if workers is not None else []
    used += [counted(threads, "torch thread")] if threads is not None else []
    now = f" Now: {' and '.join(used)}." if used else ""
    return f"{raised} Or fit workers and threads into {cpus(quota_cpus)}: {' and '.join(change.added)}.{now}", change
