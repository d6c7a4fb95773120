"""Folders of jobs of many ranks for tests: computed journals, as ranks on the CPU write them."""

import os
from pathlib import Path

import msgspec
import numpy as np
from sample_journals import header

from lightning_gpuprof.capture.step_blocks import step_blocks
from lightning_gpuprof.capture.step_clock import ClosedStep
from lightning_gpuprof.model.journal import (
    FIRST_OF_EPOCH,
    Conditions,
    Footer,
    Record,
    Sample,
    Slot,
    Standstill,
)
from lightning_gpuprof.model.pid_space import pid_space

STEP_NS = 60_000_000
_SLOTS = (
    Slot(id=0, action="fetch", phase="data_wait"),
    Slot(id=1, action="training_step", phase="forward"),
    Slot(id=2, action="all_reduce", phase="sync"),
)
_BLOCK = 80
"""Steps in 5 s."""


def write_rank(
    folder: Path,
    rank: int,
    of: int,
    *,
    steps: int = 200,
    late_ms: float = 0.0,
    status: str = "",
    place: str = "",
    left_collective: bool = False,
    hangs_at: str = "",
    waits: bool = False,
    host: str = "",
    pid: int | None = None,
    job: str = "j",
    file: int | None = None,
    lasts_s: float = 0.0,
    pids_of: str | None = None,
    epoch_s: int = 4_000_000_000,
) -> Path:
    """A journal of steps of 60 ms, 10 of data, 20 of forward, and the rest waiting for the other ranks.

    Args:
        folder: Of the job; it is made.
        rank: Of the journal.
        of: Ranks of the job.
        steps: How many it finished.
        late_ms: How much longer its data takes.
        status: It ended so; empty: it has not ended.
        place: Where an exception was raised.
        left_collective: It was raised by a collective.
        hangs_at: It makes no progress there.
        waits: It makes none where ranks wait for each other.
        host: Name of where it ran; empty: here.
        pid: Of its process; None: this one.
        job: The same for all ranks.
        file: Number in the file's name; None: its rank.
        lasts_s: For so long after its last step and standstill it was sampled.
        pids_of: The boot and PID namespace of its process; None: this one's, unless another host is named.
        epoch_s: Unix time of its begin; by itself it is after this process began.
    """
    folder.mkdir(parents=True, exist_ok=True)
    begun = header(
        run_id=f"r{rank}",
        rank=rank,
        world_size=of,
        host=host or "here",
        pid=os.getpid() if pid is None else pid,
        pid_space=("" if host else pid_space()) if pids_of is None else pids_of,
        epoch_ns=epoch_s * 10**9,
        job=job,
    )
    conditions: dict[str, str | int | float | bool | None] = {
        "device.type": "cpu",
        "trainer.strategy": "DDPStrategy",
        "trainer.world_size": of,
    }
    records: list[Record] = [begun, Conditions(values=conditions), *_SLOTS]
    noise_ns = np.random.default_rng(rank).integers(0, 500_000, steps)
    for begin in range(0, steps, _BLOCK):
        rows = range(begin, min(steps, begin + _BLOCK))
        records += step_blocks([_step(row, round(late_ms * 1e6) + int(noise_ns[row])) for row in rows], _refuse)
        t_ns = (rows[-1] + 1) * STEP_NS
        records += [
            Sample(source="host", subject="process", t_ns=t_ns - at, values={"cpu_cpus": 0.9}) for at in range(25)
        ]
    end_ns = steps * STEP_NS
    if hangs_at or waits:
        at = {"slot": 2 if waits else 1, "place": hangs_at, "collective": "all_reduce" if waits else ""}
        records.append(Standstill(t_ns=end_ns + 40 * 10**9, since_ns=end_ns, **at))  # type: ignore[arg-type]
    if lasts_s:
        t_ns = end_ns + (40 * 10**9 if hangs_at or waits else 0) + round(lasts_s * 1e9)
        records.append(Sample(source="host", subject="process", t_ns=t_ns, values={"cpu_cpus": 0.9}))
    if status:
        records.append(Footer(end_ns=end_ns, status=status, place=place, left_collective=left_collective, overhead={}))
    path = folder / f"rank{rank if file is None else file}.jsonl"
    path.write_bytes(b"".join(msgspec.json.encode(one) + b"\n" for one in records))
    return path


def _step(row: int, late_ns: int) -> ClosedStep:
    data_ns, forward_ns = 10_000_000 + late_ns, 20_000_000
    return ClosedStep(
        batch=row,
        start_ns=row * STEP_NS,
        end_ns=(row + 1) * STEP_NS,
        global_step=row,
        epoch=0,
        flags=0 if row else FIRST_OF_EPOCH,
        charged=[data_ns, forward_ns, STEP_NS - data_ns - forward_ns],
        cpu_charged=None,
        run_delay_ns=-1,
    )


def _refuse(step: ClosedStep, error: ValueError) -> None:
    raise AssertionError(f"{step}: {error}")
