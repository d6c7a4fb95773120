"""The ranks of a job side by side: who is late, in what, why, and what late ranks share."""

import shlex
from collections.abc import Mapping

import msgspec

from lightning_gpuprof.model.cost import Cost
from lightning_gpuprof.model.numbers import counted, listed, numbered
from lightning_gpuprof.model.phases import COMPUTE_PHASES, OutsidePart, Phase
from lightning_gpuprof.model.share import Share

_MOST_HOSTS = 4
"""That a name of ranks lists."""

_SLOW_CLOCK_RATIO = 0.95
"""Of the clock of the others: GPUs below it are slow. Heuristic."""

_LARGER_RATIO = 1.1
"""Of the batches of the others: from here on they are larger. Heuristic."""


_MORE_READ_RATIO = 4.0
_LEAST_READ_BYTES_PER_S = 5e6
"""Of what the others read from disks, and bytes a second: from here on disks are what is different. Heuristic."""


class RankShare(msgspec.Struct, frozen=True, kw_only=True):
    """One rank in the steps that all have steady."""

    rank: int
    host: str
    gpu: str = ""
    """Model of its GPU; empty if it has none or several."""
    gpu_number: int | None = None
    """Number of that GPU on its host, as ``nvidia-smi`` counts them."""
    switch: str = ""
    """Network switch that its host is attached to; empty if not known."""
    pipeline_stage: int | None = None
    """Which part of the model it has."""
    shard: int | None = None
    """Which part of the data it trains on, where several ranks share one copy of the model."""
    excess_ms: float
    """Median of its own time minus the median of the other ranks'; below 0 for quick ranks."""
    slowest_ratio: float
    """Share of the steps in which no rank took longer on its own."""
    period_ms: float = 0.0
    """Median."""
    phases_ms: Mapping[Phase, float] = msgspec.field(default_factory=dict)
    """Median of each phase that took any time on any rank."""
    batch_samples: float | None = None
    """Samples of a step; None: not known."""
    peak_memory_bytes: float | None = None
    """That it needs of its GPU at most, or its process on a CPU; None: not known."""

    @property
    def samples_per_s(self) -> float | None:
        """Of its median step; None: not known."""
        return 1e3 * self.batch_samples / self.period_ms if self.batch_samples and self.period_ms else None


class LateRanks(msgspec.Struct, frozen=True, kw_only=True):
    """The ranks that take longest on their own: one, or several that are late alike."""

    ranks: tuple[int, ...]
    excess_ms: float
    """Median of their own time minus that of the others."""
    excess_by_phase_ms: Mapping[Phase, float]
    """Median of the phase minus the median of the others."""
    slowest_ratio: float
    """Share of the steps in which one of them takes longest."""
    lost: Share
    """Of each step what it would be shorter without them, as a share of the step time."""
    run_delay_ms: tuple[float, float] | None = None
    """How long their main thread, and that of the others, is ready to run but has no CPU; None: not measured."""
    sm_clock_mhz: tuple[float, float] | None = None
    """Median SM clock of their busy GPUs, and of those of the others; None: not measured."""
    throttled: tuple[str, float, float] | None = None
    """Why clocks are held down on their GPUs rather than on others: the reason, its share of their busy samples, and
    of those of the others; None: not measured, or for no reason so."""
    batch_samples: tuple[float, float] | None = None
    """Samples of their steps, and of those of the others; None: not known."""
    batch_length: tuple[float, float] | None = None
    """Mean length of their rows of tokens, and of those of the others; None: no such rows."""
    workers: tuple[float, float] | None = None
    """Workers of their DataLoader, and of those of the others; None: not known."""
    read_bytes_per_s: tuple[float, float] | None = None
    """What they and their workers read from disks, and the others; None: not measured."""
    site: str = ""
    """``file:line function`` of the user's code in which they were seen most in :attr:`phase`; empty if not known."""

    @property
    def is_starved(self) -> bool:
        """Whether they are late because they wait for a CPU."""
        return self.run_delay_ms is not None and self.run_delay_ms[0] - self.run_delay_ms[1] >= 0.5 * self.excess_ms

    @property
    def has_slow_gpu(self) -> bool:
        """Whether they are late in what a GPU computes, and theirs runs at a lower clock."""
        if self.sm_clock_mhz is None or self.phase not in COMPUTE_PHASES:
            return False
        own, others = self.sm_clock_mhz
        return own < _SLOW_CLOCK_RATIO * others

    @property
    def larger_batches(self) -> tuple[str, float, float] | None:
        """What their batches have more of, how many, and how many those of the others have.

        None: nothing, or they are late in what takes no longer for that.
        """
        if self.phase not in {*COMPUTE_PHASES, "data_wait", "h2d"}:
            return None
        for what, both in (("samples", self.batch_samples), ("tokens in a row", self.batch_length)):
            if both is not None and both[0] >= _LARGER_RATIO * both[1]:
                return what, *both
        return None

    @property
    def has_fewer_workers(self) -> bool:
        """Whether they are late with their batches, and load with fewer workers."""
        return self.phase == "data_wait" and self.workers is not None and self.workers[0] < self.workers[1]

    @property
    def reads_from_disk(self) -> bool:
        """Whether they are late with their batches, and read from disks what the others have in the page cache."""
        if self.phase != "data_wait" or self.read_bytes_per_s is None:
            return False
        own, others = self.read_bytes_per_s
        return own >= max(_LEAST_READ_BYTES_PER_S, _MORE_READ_RATIO * others)

    @property
    def phase(self) -> Phase:
        """In which they take longer."""
        return max(self.excess_by_phase_ms, key=lambda one: self.excess_by_phase_ms[one])


class RareRanks(msgspec.Struct, frozen=True, kw_only=True):
    """The rank, or the ranks of a host, that most often are the only late ones, if only now and then."""

    ranks: tuple[int, ...]
    steps: int
    """Steps of which these are a part."""
    step_ms: float
    """Mean of them."""
    steps_ratio: float
    """Share of the steps in which they take longer than any other by what they usually lose."""
    excess_ms: float
    """Median over these steps."""
    phase: Phase
    """In which they take longer then."""
    lost_ratio: float
    """Share of the steps' time by which they take longer than any other in these steps."""
    lower_ratio: float
    """5 % lower bound of the same."""
    of_all_ratio: float
    """Their share of what all ranks lose by being late alone by as much."""

    @property
    def lost(self) -> Cost:
        """What it costs a mean step."""
        ms, lower_ms = self.lost_ratio * self.step_ms, self.lower_ratio * self.step_ms
        return Cost(ms=ms, lower_ms=lower_ms, step_ms=self.step_ms, steps=self.steps)


class LateOutside(msgspec.Struct, frozen=True, kw_only=True):
    """The rank that takes longest in all on its own in a part of the wall time outside of the steps."""

    part: OutsidePart
    rank: int
    host: str
    total_s: float
    excess_s: float
    """Beyond the longest of the others."""


class RankTimes(msgspec.Struct, frozen=True, kw_only=True):
    """All ranks of a job side by side, by durations: clocks of hosts need not agree."""

    world_size: int
    steps: int
    """Steps that were compared: steady on all ranks."""
    phases: tuple[Phase, ...]
    """What counts as a rank's own time."""
    imbalance: Share
    """What each step would be shorter if every rank's work were always its usual share, of the step time."""
    above_median: Share
    """What each step would be shorter if no rank took longer on its own than the median rank, of the step time."""
    late: LateRanks
    rare: RareRanks | None
    """None: no rank is ever late alone."""
    outside: tuple[LateOutside, ...]
    """By part; empty: not all of it was looked at."""
    ranks: tuple[RankShare, ...]
    left_out: tuple[str, ...] = ()
    """Which ranks are not among them, and why."""
    folder: str = "RUN"
    """Where their journals are."""

    @property
    def late_name(self) -> str:
        """The late ranks as :meth:`named`."""
        return self.named(*self.late.ranks)

    @property
    def most_are_late(self) -> bool:
        """Whether a few ranks are quicker rather than some late."""
        return 2 * len(self.late.ranks) > len(self.ranks)

    @property
    def report_of_late(self) -> str:
        """The command for the report of the first late rank."""
        return f"gpuprof report {shlex.quote(self.folder)} --rank {self.late.ranks[0]}"

    def waits_longer_ms(self, rank: int) -> float | None:
        """How much longer a rank waits for others than the one that waits least, median per step; None: not compared.

        Args:
            rank: Whose wait it is.
        """
        waits_ms = {one.rank: one.phases_ms.get("sync", 0.0) for one in self.ranks}
        return waits_ms[rank] - min(waits_ms.values()) if rank in waits_ms else None

    def named(self, *ranks: int) -> str:
        """Ranks as people know them, with what only they share.

        ``rank 1 (host node0, GPU 3)``, ``ranks 8 to 15 (all of host node1)``, ``ranks 8 to 31 (all on switch s2)``,
        ``ranks 2 and 5 (all with a Tesla T4)``, ``ranks 2 and 3 (all of pipeline stage 1)``, ``ranks 2 and 3 (all of
        data shard 1)``, ``ranks 3 and 11 (local rank 3 of each host)``; no host where all ranks are on one.

        Args:
            ranks: At least one.
        """
        name, chosen = numbered("rank", ranks), set(ranks)
        by_host: dict[str, list[int]] = {}
        for one in self.ranks:
            by_host.setdefault(one.host, []).append(one.rank)
        hosts = [host for host, of in by_host.items() if not chosen.isdisjoint(of)]
        if len(chosen) == 1:
            gpu = next((one.gpu_number for one in self.ranks if one.rank in chosen), None)
            known = [f"host {hosts[0]}"] if len(by_host) > 1 else []
            known += [] if gpu is None else [f"GPU {gpu}"]
            return f"{name} ({', '.join(known)})" if known else name
        for text, values in (
            ("of host {}", {one.rank: one.host if len(by_host) > 1 else None for one in self.ranks}),
            ("on switch {}", {one.rank: one.switch or None for one in self.ranks}),
            ("with a {}", {one.rank: one.gpu or None for one in self.ranks}),
            ("of pipeline stage {}", {one.rank: one.pipeline_stage for one in self.ranks}),
            ("of data shard {}", {one.rank: one.shard for one in self.ranks}),
        ):
            first, *others = {values[rank] for rank in chosen}
            if first is not None and not others and chosen == {rank for rank, one in values.items() if one == first}:
                return f"{name} (all {text.format(first)})"
        if len(by_host) > 1 and chosen.issuperset(rank for host in hosts for rank in by_host[host]):
            where = f"hosts {listed(hosts)}" if len(hosts) <= _MOST_HOSTS else counted(len(hosts), "host")
            return f"{name} (all of {where})"
        places = {of.index(rank) for of in by_host.values() for rank in of if rank in chosen}
        of_each = len(places) == 1 and len(chosen) == len(by_host)
        return f"{name} (local rank {places.pop()} of each host)" if of_each else name
