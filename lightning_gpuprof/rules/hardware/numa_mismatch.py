"""The process runs on CPUs of another NUMA node than the one its GPU is attached to.

## What it means
On a machine with several CPU sockets, each GPU is attached to one of them. A process that is bound to the CPUs of
another one launches kernels and copies batches across the link between the sockets, with a longer latency and less
bandwidth.

## How it is measured
At the start of the run: the NUMA nodes of the CPUs that the process may use (its affinity), and the node of the GPU's
PCI slot (`/sys/bus/pci/devices/ADDRESS/numa_node`). The rule speaks where the GPU's node is none of the process's, and
the host holds up the step: the GPU idles for 15 % of it, waits for batches, ranks, callbacks and logging apart, or it
waits for copies to it for 5 %. It is information without a gain, as the cost of the distance differs from machine to
machine.

## When it is wrong
- The process was bound differently after its start, or only some of its threads.
- Virtual machines may show nodes that are not the real ones. Where the kernel does not know the node, the rule is not
  evaluated.
- The step may be slow for other reasons, which have findings of their own. The distance then makes little difference.

## What to do
Bind the process to the node of its GPU: `numactl --cpunodebind=N --membind=N`, or the option of the launcher, such as
`srun --gpu-bind=closest` or `mpirun --bind-to numa`. In a container, the CPUs of that node have to be in its cpuset.
`nvidia-smi topo -m` shows the nodes.
"""

from lightning_gpuprof.model.device_step import STARVED_RATIO
from lightning_gpuprof.model.signals import idle_in_model_ratio
from lightning_gpuprof.rules.base import Finding, Metrics, measured, percent, threshold
from lightning_gpuprof.rules.examples import fires, looks_alike, not_applicable, not_evaluated, quiet
from lightning_gpuprof.rules.hardware.gpu_rule import Gpu, GpuRule

_TWO = {"machine.numa_nodes": 2, "machine.affinity_numa_nodes": "0"}
_SAID = "CPUs of NUMA node 0 ... is at node 1 ... numactl --cpunodebind=1 --membind=1"
_FAR = {"run": _TWO, "gpu": {"facts": {"numa_node": 1}}}


class NumaMismatch(GpuRule):
    id = "numa-mismatch"
    title = "The process runs far from its GPU"
    certainty = 0.5

    idle_ratio: float = threshold(STARVED_RATIO, source="TraceLens: idle above 15 %, as for launch-bound")
    copies_ratio: float = threshold(0.05, source="TraceLens: copies above 5 %")

    examples = (
        fires("CPUs of node 0, a GPU at node 1 that idles for 30 %", "info", _SAID, saves_ms=0, idle_ratio=0.3, **_FAR),
        quiet("the GPU is at one of the process's nodes", idle_ratio=0.3, run=_TWO, gpu={"facts": {"numa_node": 0}}),
        quiet("the GPU is busy", idle_ratio=0.05, **_FAR),
        looks_alike("the GPU waits for batches", idle_ratio=0.3, times_ms={"data_wait": 30.0}, **_FAR),
        not_evaluated("the kernel does not know the GPU's node", "NUMA node of the GPU", run=_TWO, gpu={}),
        not_evaluated("the process's CPUs are not known", "NUMA nodes of the process", gpu={"facts": {"numa_node": 1}}),
        not_applicable(
            "there is one node", "one NUMA node", run={"machine.numa_nodes": 1}, gpu={"facts": {"numa_node": 0}}
        ),
    )

    def judge(self, metrics: Metrics, gpu: Gpu) -> Finding | None:
        numa = measured(gpu.numa)
        if numa.is_near:
            return None
        metrics.require_steady()
        step = measured(metrics.device_step)
        idle, copies = idle_in_model_ratio(metrics, step), step.upload_ratio
        if idle < self.idle_ratio and copies < self.copies_ratio:
            return None
        if idle >= self.idle_ratio:
            why = f"{percent(idle)} of the step, the GPU idles without waiting for a batch, a callback or a logger"
            evidence = self.evidence("idle_ratio", idle, "GPU idle, no batch, callback or logger awaited")
        else:
            why = f"{percent(copies)} of the step, the GPU waits for copies to it"
            evidence = self.evidence("copies_ratio", copies, "GPU waits for copies to it")
        node, own, plural = numa.node, numa.process_nodes, "s" if "," in numa.process_nodes else ""
        return self.finding(
            subject=gpu.device.title,
            summary=f"The process runs on CPUs of NUMA node{plural} {own}, but {gpu.device.title} is at node {node}. "
            f"For {why}; the distance may be part of it.",
            advice=f"Bind the process to the node of its GPU: numactl --cpunodebind={node} --membind={node} python "
            "..., or with your launcher's option for it.",
            evidence=(
                self.fact("NUMA node of the GPU", float(node)),
                self.fact("NUMA nodes of the process", own),
                evidence,
            ),
        )
