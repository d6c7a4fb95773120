"""Large collectives between devices with NVLink run at the speed of PCIe or less.

## What it means
The A100, H100, H200 and B200 in SXM form are joined by NVLink. If collectives do not go through it (switched off, a
link down, a container or virtual machine without peer access), they go through PCIe and host memory.

## How it is measured
In trace windows of a single node: the bus bandwidth, as nccl-tests defines it, of the fastest all-reduce, all-gather or
reduce-scatter of at least 16 MiB. A late rank makes the first such collective of a step slow, hardly all of them: there
must be at least two in a step. The fastest of all windows is below 32 GB/s, the most that PCIe 4.0 x16 carries in one
direction. The gain takes half of NVLink's rate as reachable for the exposed collectives.

## When it is wrong
- Jobs over several nodes, and devices without NVLink or with a name that is not in the table, are passed over.
- Compression hooks and sharding change what is sent, not its bandwidth.

## What to do
`nvidia-smi topo -m` and `nvidia-smi nvlink --status` show the links; `NCCL_DEBUG=INFO` in one run shows what NCCL uses
(`via P2P` or `via SHM`). Unset `NCCL_P2P_DISABLE`.
"""

import re
from collections.abc import Sequence

from lightning_gpuprof.model.collectives import CollectiveRun, CollectiveWindow
from lightning_gpuprof.model.share import Measured
from lightning_gpuprof.model.trace.communication import CollectiveTimes
from lightning_gpuprof.rules.base import BaseRule, Change, Evidence, Finding, Metrics, MissingSignal, claims, threshold
from lightning_gpuprof.rules.examples import fires, looks_alike, not_evaluated, quiet
from lightning_gpuprof.rules.ranks.collective_times import MIB, collective_run

_NVLINK_GB_PER_S: Sequence[tuple[re.Pattern[str], float]] = (
    (re.compile(r"\bG?B200\b"), 900.0),
    (re.compile(r"\bH200\b(?! NVL)|\bH100\b.*(?:80GB HBM3|SXM)"), 450.0),
    (re.compile(r"\bA100[- ]SXM"), 300.0),
)
"""One direction of all links of a device: data sheets of NVIDIA B200, H200, H100 SXM and A100 SXM."""

_KINDS = frozenset({"all_reduce", "all_gather", "reduce_scatter"})

_SLOW = {"collectives": ({"ms": 4.096},)}


class CommSlowLink(BaseRule):
    id = "comm-slow-link"
    title = "Collectives do not use NVLink"
    needs = "ranks"
    specialises = ("exposed-comm",)

    least_mib: float = threshold(16.0, source="heuristic: NVLink is above 100 GB/s from there on")
    least_gb_per_s: float = threshold(32.0, source="PCIe 4.0 x16, one direction")
    reachable_ratio: float = threshold(0.5, source="the method: below half of the table's rate")

    examples = (
        fires("25 MiB take 4.1 ms", "warning", "reaches 11.2 GB/s; NVLink carries 300 ... nvidia-smi nvlink", **_SLOW),
        fires(
            "peers are switched off", "warning", "Unset NCCL_P2P_DISABLE", **_SLOW, run={"env.NCCL_P2P_DISABLE": "1"}
        ),
        fires("the collective reaches 31.9 GB/s", "warning", "31.9 GB/s", collectives=({"ms": 3.68, "mb": 64.0},)),
        quiet("the collective reaches 32.1 GB/s", collectives=({"ms": 3.658, "mb": 64.0},)),
        quiet("NVLink is at work", collectives=({"ms": 0.23},)),
        quiet("there are two nodes", **_SLOW, run={"trainer.num_nodes": 2}),
        looks_alike("a rank is late", collectives=({"ms": 8.23, "min_ms": 0.23},)),
        looks_alike("the only one of a step may always wait", collectives=({"ms": 9.2, "count": 5},)),
        looks_alike("the device is on PCIe", **_SLOW, device="NVIDIA A100-PCIE-40GB"),
        looks_alike("two devices are joined", **_SLOW, device="NVIDIA H100 NVL"),
        looks_alike("the device has no NVLink", **_SLOW, device="NVIDIA L40S"),
        looks_alike("the device has fewer links", **_SLOW, device="Tesla V100-SXM2-32GB"),
        not_evaluated("sizes are not known", "16 MiB", collectives=({"ms": 6.0, "mb": None},)),
        not_evaluated("the nodes are not known", "nodes", **_SLOW, run={"trainer.num_nodes": None}),
        not_evaluated("nothing was traced", "no trace window", **_SLOW, metrics={"windows": ()}),
    )

    def check(self, metrics: Metrics) -> Finding | None:
        run = collective_run(metrics)
        if run is None:
            return None
        nodes = metrics.condition("trainer.num_nodes")
        if nodes is None:
            raise MissingSignal("the number of nodes is not known")
        nvlink = _nvlink_gb_per_s(run)
        if nodes != 1 or nvlink is None:
            return None
        large = [(window, one) for window in run.windows for one in self._large(window)]
        rates = [(one.best_bus_bandwidth_bytes_per_s, one) for _, one in large if one.best_bus_bandwidth_bytes_per_s]
        if not rates:
            raise MissingSignal(f"no collective of {self.least_mib:g} MiB or more with a known size is in the windows")
        if any(sum(window.per_step(one) for one in self._large(window)) < 2 for window in run.windows):
            return None  # the only one of a step may always wait
        best_per_s, fastest = max(rates, key=lambda item: item[0])
        best = best_per_s / 1e9
        time = Measured.over([sum(one.exposed_us for one in self._large(w)) / 1e3 / w.steps for w in run.windows])
        exposed = metrics.cost(time.ms, time.lower_ms)
        saved = exposed.part(1.0 - best / (self.reachable_ratio * nvlink))
        if best >= self.least_gb_per_s or not saved.is_worth():
            return None
        size = (fastest.message_bytes or 0) / MIB
        disabled = str(metrics.condition("env.NCCL_P2P_DISABLE")) == "1"
        return self.finding(
            subject=fastest.kind,
            summary=(
                f"The fastest {fastest.kind} of {size:.3g} MiB reaches {best:.3g} GB/s; NVLink carries {nvlink:g} "
                f"GB/s. Large collectives that do not overlap with computation take {exposed}."
            ),
            advice=(
                "Unset NCCL_P2P_DISABLE: with it, NCCL cannot use NVLink."
                if disabled
                else "Check the links with `nvidia-smi topo -m` and `nvidia-smi nvlink --status`, and run once with "
                "NCCL_DEBUG=INFO: `via SHM` instead of `via P2P` means that GPUs cannot reach each other (container, "
                "virtual machine, IOMMU)."
            ),
            change=Change(remove=("NCCL_P2P_DISABLE=1",)) if disabled else None,
            evidence=(
                self.evidence("least_gb_per_s", best, "bus bandwidth of the fastest large collective", "GB/s"),
                Evidence(name="NVLink, one direction", value=nvlink, unit="GB/s", source="data sheet of the device"),
                self.fact("exposed large collectives", exposed.ms, "ms"),
                self.fact("step time", run.period_ms, "ms"),
            ),
            cost=saved,
            confidence=0.6,
            explains=claims.COMMUNICATION,
        )

    def _large(self, window: CollectiveWindow) -> list[CollectiveTimes]:
        return [
            one
            for one in window.communication.sizes
            if one.kind in _KINDS and (one.message_bytes or 0) >= self.least_mib * MIB
        ]


def _nvlink_gb_per_s(run: CollectiveRun) -> float | None:
    """None if the devices have none or their names are not in the table."""
    names = {name for w in run.windows for name in w.facts.results.gpus}
    rates = {next((rate for pattern, rate in _NVLINK_GB_PER_S if pattern.search(name)), None) for name in names}
    return rates.pop() if len(rates) == 1 else None
