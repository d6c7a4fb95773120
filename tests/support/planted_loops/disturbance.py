"""What others took from a run goes out, in seconds: no time of a profiler can be expected to be nearer than that.

Numbers of the kernel: how long tasks were ready to run but had no CPU, and how long they waited for a disk or for
memory (pressure stall information); and how long the machine's own CPUs were given to another guest (steal). The run
itself is in the first where it has more threads than CPUs. Where the kernel does not tell, nothing is taken to be lost,
and the comparison is as strict as can be.
"""

import psutil

from lightning_gpuprof.capture.host.machine import pressure


class Disturbance:
    """Seconds lost since it was made.

    Args:
        proc_root: Where the kernel's files are.
    """

    def __init__(self, proc_root: str = "/proc") -> None:
        self._proc_root = proc_root
        self._before_s = self._total_s()

    def lost_s(self) -> float:
        """Upper bound of what one thread lost to others."""
        return max(0.0, self._total_s() - self._before_s)

    def _total_s(self) -> float:
        found = pressure(self._proc_root)
        waited_s = sum(found.get(f"pressure_{resource}_some_ratio", 0.0) for resource in ("cpu", "io", "memory"))
        return waited_s + float(getattr(psutil.cpu_times(), "steal", 0.0))
