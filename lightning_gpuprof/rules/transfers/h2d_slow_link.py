"""Large copies from pinned memory are much slower than the PCIe link allows.

## What it means
A large copy from pinned memory reaches about four fifths of the link's rate. Less than half points to memory of the
other CPU socket, to a switch that several GPUs share, or to other traffic on the link.

## How it is measured
Trace window with most of them: bytes over time of copies from pinned memory, a lower bound if small ones are among
them. The ceiling is the link at its best reading (NVML): transfers per second, times lanes, times 128/130. The gain is
what the ceiling would save. Copies beside kernels cost nothing: certain is only what the GPU waits for them (as in
`h2d-exposed`, whose time it explains), less their time at the ceiling.

## When it is wrong
- Copies of several GPUs at the same time share the host's memory.
- A link that is itself slower than it could be is `pcie-degraded`.

## What to do
Bind the process to the CPU socket of its GPU: `numactl --cpunodebind=N --membind=N`; `nvidia-smi topo -m` shows N.
"""

from lightning_gpuprof.model.numbers import decimal_size, gib, millis, percent
from lightning_gpuprof.model.signals import require_possible
from lightning_gpuprof.rules.base import BaseRule, Finding, Metrics, MissingSignal, claims, threshold
from lightning_gpuprof.rules.examples import fires, looks_alike, not_evaluated, quiet
from lightning_gpuprof.rules.hardware.gpu_rule import sampled_gpus
from lightning_gpuprof.rules.launches.step_rule import exposed_upload_ms


def _copied(ratio: float = 0.1, *, mib: int = 64, gpu: object = None, **more: object) -> dict[str, object]:
    return {"gpu": gpu or {}, "copied": {"h2d_ms": mib * 1.0653 / 64 / ratio, "bytes_each": mib * 2**20, **more}}


_EXPOSED = {"kernels": 100, "copy": {"kind": "HtoD (Pinned -> Device)", "us": 4000.0, "nbytes": 64 << 20}}


class H2dSlowLink(BaseRule):
    id = "h2d-slow-link"
    title = "Copies to the GPU underuse the PCIe link"
    specialises = ("h2d-exposed",)

    reached_ratio: float = threshold(0.50, source="heuristic: four fifths are usual")
    least_bytes: int = threshold(8 * 2**20, source="heuristic: 8 MiB, so that start-up does not count")
    least_copies: int = threshold(3, source="heuristic: as many bytes as so many of the largest")
    least_readings: int = threshold(3, source="heuristic, as for pcie-degraded")

    examples = (
        fires("copies reach 10 % of the link", "warning", "reach 6.3 GB/s ... numactl", saves_ms=9.59, **_copied()),
        fires("the GPU waits for copies at 27 %", "critical", "16.8 GB/s", gpu={}, step=_EXPOSED, period_ms=14.1),
        quiet("copies reach 80 % of the link", **_copied(0.8)),
        looks_alike("the link itself is slow", **_copied(gpu={"values": {"pcie_generation": 3.0, "pcie_width": 8.0}})),
        not_evaluated("there is no trace window", "no window holds 3 copies", gpu={}),
    )

    def check(self, metrics: Metrics) -> Finding | None:
        gpus = sampled_gpus(metrics)
        if len(gpus) != 1:
            raise MissingSignal("which of several GPUs a copy went to is not known")
        period_ms, link, device = metrics.step_ms, gpus[0].link, gpus[0].device
        if link is None or link.bytes_per_s <= 0 or gpus[0].slow_readings < self.least_readings:
            raise MissingSignal(f"the PCIe link was not measured{'' if link is None else ' often enough'}")
        found = [(row, w) for w in metrics.windows if (row := w.pinned_copies(self.least_copies, self.least_bytes))]
        if not found:
            raise MissingSignal(f"no window holds {self.least_copies} copies of 8 MiB or more from pinned memory")
        row, window = max(found, key=lambda pair: pair[0].total_bytes or 0)
        speed, total, average = row.bandwidth_bytes_per_s or 0.0, float(row.total_bytes or 0), row.average_bytes or 0.0
        require_possible("the speed of copies", speed, total, average)
        if speed <= 0 or speed >= self.reached_ratio * link.bytes_per_s:
            return None
        reached = speed / link.bytes_per_s
        least_ms = total / link.bytes_per_s * 1e3 / len(window.steps_us)
        lost_ms = min(period_ms, total / speed * 1e3 / len(window.steps_us) - least_ms)
        cost = metrics.cost(lost_ms, min(lost_ms, max(0.0, exposed_upload_ms(metrics) - least_ms)))
        sizes = gib(average) + ("" if row.min_bytes == row.max_bytes else " on average")
        return self.finding(
            severity="critical" if cost.severity == "critical" else cost.possible_severity,
            subject=device.title,
            summary=f"Copies of {sizes} from pinned memory reach {decimal_size(speed)}/s. That is {percent(reached)} "
            f"of PCIe {link}: each {millis(period_ms)} step takes {millis(cost.ms)} longer than at full speed.",
            advice=f"Bind the process to the CPU socket of {device.place}: numactl --cpunodebind=N --membind=N "
            "python ...; nvidia-smi topo -m shows N (NUMA affinity).",
            evidence=(
                self.evidence("reached_ratio", reached, "speed of large pinned copies over the link's"),
                self.evidence("least_copies", row.count, "copies"),
                self.fact("ceiling", link.bytes_per_s / 1e9, "GB/s"),
            ),
            cost=cost,
            confidence=0.5,
            explains=claims.BATCH_COPIES,
        )
