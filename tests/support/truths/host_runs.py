"""A source of reports: a training on the CPUs of a machine that is computed, down to the files of its kernel.

Its steps drive the real step clock; each second the files say what happened since, and the real sampler reads them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import inf, isinf
from pathlib import Path
from random import Random

from fake_machine import OWN, FakeMachine

from lightning_gpuprof.capture.host.cgroups import usable_cpus
from lightning_gpuprof.capture.host.sampler import HostSampler
from truths.gpu_runs import HEALTHY, GpuRun, report_of

_PERIOD_US = 100_000.0
"""After which a control group has its quota again; the kernel's default."""

_SPREAD = 0.02
"""Of the host's times from step to step."""


@dataclass(frozen=True, kw_only=True)
class HostProgram:
    """What a training on CPUs does.

    Attributes:
        work: Happens once in forward and twice in backward.
        cpus: Of the machine.
        quota_cpus: Of its control group.
        threads: On which torch computes.
        of_others: Pages that are read back from swap for others in each step.
        stalls_known: Whether the kernel counts how long the group waits for memory.
    """

    work: Callable[[HostRun], None]
    cpus: int = 8
    quota_cpus: float = inf
    threads: int = 1
    of_others: int = 0
    stalls_known: bool = True


@dataclass(frozen=True, kw_only=True)
class Hosted:
    """A whole training of a program.

    Attributes:
        program: Makes it; what is drawn decides how large the fault is. Without the fault it is the healthy twin.
        faulty: Whether the fault is in it.
        steps: Of the training.
    """

    program: Callable[[Random, bool], HostProgram]
    faulty: bool = True
    steps: int = 400

    def __call__(self, folder: Path, seed: int) -> Path:
        random = Random(seed)
        program = self.program(random, self.faulty)
        run_folder = folder / "gpuprof"
        run_folder.mkdir()
        run = HostRun(run_folder, FakeMachine(folder / "machine"), program)
        with run.training():
            for _ in range(self.steps):
                run.host_factor = random.gauss(1.0, _SPREAD)
                with run.one_step():
                    _step(run, program)
                run.look()
        return report_of(run_folder)


def _step(run: HostRun, program: HostProgram) -> None:
    with run.part("data_wait"):
        run.python(60.0)
    with run.part("optimizer"):
        with run.part("forward"):
            program.work(run)
        with run.part("backward"):
            program.work(run)
            program.work(run)
        run.python(300.0)
    run.swapped_pages += program.of_others
    run.python(80.0)


class HostRun(GpuRun):
    """A run without a device, whose machine has counters in the files of its kernel.

    Args:
        folder: Of the run.
        machine: Where these files are.
        program: What the training does.
    """

    def __init__(self, folder: Path, machine: FakeMachine, program: HostProgram) -> None:
        self._machine, self._program = machine, program
        self._group = machine.v2()
        self._quota_us = program.quota_cpus * _PERIOD_US
        quota = "max" if isinf(self._quota_us) else f"{self._quota_us:.0f}"
        machine.put(f"{self._group}/cpu.max", f"{quota} {_PERIOD_US:.0f}\n")
        self._period, self._left_us = -1, 0.0
        self._periods, self._throttled, self._throttled_us = 0, 0, 0.0
        self._used_us, self._main_us = 0.0, 0.0
        self.swapped_pages = 0
        """Read back from swap, for whomever."""
        self._faults, self._stalled_us = 0, 0.0
        roots = machine.roots
        usable = usable_cpus(affinity=program.cpus, cgroup_root=roots.cgroup, proc_root=roots.proc)
        of_host = {"cpu.count": program.cpus, "cpu.usable": usable, "torch.num_threads": program.threads}
        of_run = {"device.type": "cpu", "trainer.precision": "32-true", "loader.num_workers": 0}
        kept = {name: value for name, value in HEALTHY.items() if not name.startswith(("device.", "loader.p"))}
        super().__init__(folder, {**kept, **of_run, **of_host})
        self._write()
        self._sampler = HostSampler(
            roots=roots,
            environ={},
            cpus=lambda: None,
            named_threads=dict,
            thread_cpu_s=lambda: 0.0,
            boot_s=lambda: self.now / 1e6,
        )
        self._sampler.open()
        self._due_us = 0.0

    def python(self, us: float) -> None:
        """The main thread computes."""
        self.compute(us, threads=1)

    def compute(self, us: float, *, threads: int) -> None:
        """So many threads compute for so long, and wait where the quota of their group is used up.

        Args:
            us: Of each thread.
            threads: The main thread and others.
        """
        left_us = us * self.host_factor
        while left_us > 1e-6:
            period = int((self.now + 1e-6) // _PERIOD_US)
            if period != self._period:
                self._period, self._left_us, self._periods = period, self._quota_us, self._periods + 1
            until_us = (period + 1) * _PERIOD_US - self.now
            part_us = min(left_us, until_us, self._left_us / threads)
            self.now += part_us
            left_us -= part_us
            self._left_us -= part_us * threads
            self._used_us += part_us * threads
            self._main_us += part_us
            if self._left_us < 1e-6 and until_us - part_us > 1e-6:
                self._throttled += 1
                self._throttled_us += (until_us - part_us) * threads
                self.now += until_us - part_us
                self.without_cpu_us += until_us - part_us

    def swap_in(self, pages: int, us: float) -> None:
        """The main thread needs pages that were swapped out.

        Args:
            pages: One after the other.
            us: That the disk needs for each.
        """
        self.now += pages * us
        self.waited_us += pages * us
        self._stalled_us += pages * us
        self._faults += pages
        self.swapped_pages += pages

    def look(self) -> None:
        """Have the machine sampled if a sample is due."""
        if self.now < self._due_us:
            return
        self._write()
        for reading in self._sampler.sample(int(self.now * 1e3)):
            self.post(reading)
        self._due_us = self.now + self._sampler.interval_s * 1e6

    def _write(self) -> None:
        machine, own = self._machine, self._machine.processes[OWN]
        own.state, own.user_s, own.main_thread_s = "R", self._used_us / 1e6, self._main_us / 1e6
        own.delay_s, own.major_faults = self.without_cpu_us / 1e6, self._faults
        own.rss_bytes, own.threads = 2 << 30, self._program.threads
        machine.process(OWN)
        busy_s = self._used_us / 1e6 / self._program.cpus
        machine.cpus(*[busy_s] * self._program.cpus, idle_s=self.now / 1e6 - busy_s)
        machine.put("proc/vmstat", f"nr_free_pages 5\npswpin {self.swapped_pages}\npswpout 0\n")
        if self._program.stalls_known:
            machine.pressure("memory", int(self._stalled_us), int(self._stalled_us), self._group, ".pressure")
        machine.put(
            f"{self._group}/cpu.stat",
            f"nr_periods {self._periods}\nnr_throttled {self._throttled}\nthrottled_usec {self._throttled_us:.0f}\n",
        )
