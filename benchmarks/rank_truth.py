"""Whether the right rank is named: jobs with a planted late, failed or hanging rank, and healthy ones.

Run it from anywhere::

    python benchmarks/rank_truth.py
    python benchmarks/rank_truth.py --real

Jobs of 2 to 1,024 ranks are computed: each rank draws its own time of each phase, a step lasts as long as the slowest
one, and the others wait for gradients meanwhile. ``--real`` adds fits of 2 and 4 processes with gloo, which a busy
machine can make late by itself. What counts is the first thing that ``gpuprof ranks`` says, and its gain beside what
the same job saves a step when it is computed again without the late ranks. With more ranks the slowest
healthy one takes longer, and a late rank costs less of the step; what is planted costs more than the rule's tenth.
"""

import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

import msgspec
import numpy as np
import numpy.typing as npt
from paired import command_line, wide_console, write_json
from rich.table import Table

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests" / "support"))  # the tests compute ranks, too

from rank_folders import write_rank

from lightning_gpuprof.capture.step_blocks import step_blocks
from lightning_gpuprof.capture.step_clock import ClosedStep
from lightning_gpuprof.job_ranks import job_ranks
from lightning_gpuprof.model.job_ranks import JobRanks
from lightning_gpuprof.model.journal import (
    FIRST_OF_EPOCH,
    GRADIENT_WAIT,
    JOURNAL_VERSION,
    Conditions,
    Footer,
    Header,
    Record,
    Slot,
)
from lightning_gpuprof.model.phases import Phase, words_of
from lightning_gpuprof.summary_file import SummaryFile

Times = npt.NDArray[np.float64]
"""ms, shape (ranks, steps)."""
USUAL_MS: dict[Phase, float] = {
    "data_wait": 3.0,
    "h2d": 0.5,
    "forward": 15.0,
    "backward": 25.0,
    "optimizer": 4.0,
    "callbacks": 1.0,
    "logging": 0.5,
}
EXCHANGE_MS = 6.0
"""What the reduction of gradients takes once all ranks are there."""
NOISE = 0.02
MOST_COST_ERROR = 0.03
ON_A_HOST = 8
STEPS = 320
GONE = 2**22 + 1
"""No process has this number."""
FAILURE = {"status": "interrupted: ValueError", "place": "train.py:12 training_step"}
OWN_ERROR = {"status": "interrupted: RuntimeError", "place": "train.py:12 training_step"}
OF_PEERS = {"status": "interrupted: RuntimeError", "place": "train.py:40 main", "left_collective": True}


@dataclass(frozen=True, kw_only=True)
class Case:
    """One job and what is to be said of it."""

    name: str
    ranks: int
    plant: Callable[[dict[Phase, Times], np.random.Generator], None] = lambda own, draw: None
    late: frozenset[int] = frozenset()
    phase: Phase | None = None
    rules: frozenset[str] = frozenset()
    """That may be found; empty: none."""
    left_out: tuple[int, ...] = ()
    """Ranks without a file."""
    noise: float = NOISE
    stages: int = 1
    """Of a pipeline; neighbouring ranks are of different ones."""
    ends: dict[int, dict[str, object]] = field(default_factory=dict)
    """Of a job that ends early: rank -> how; the others go on."""
    says: str = ""
    """A part of what is to be said of it."""


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """What was said of one job."""

    case: str
    ranks: int
    is_healthy: bool
    rank_right: bool
    cause_right: bool
    """The rule, or how the job ended."""
    phase_right: bool | None
    """None: the case has none."""
    said: str
    promised_ms: float | None = None
    """The gain; None where none is given."""
    saved_ms: float | None = None
    """A step of the job computed again without what is planted; None where it is not."""

    @property
    def cost_error(self) -> float | None:
        """How far the gain is from that, as a share of it."""
        return self.promised_ms / self.saved_ms - 1 if self.promised_ms and self.saved_ms else None


def late(
    ranks: int, which: Sequence[int], phase: Phase, more_ms: float, *, name: str = "", every: int = 1, **more: object
) -> Case:
    """Some ranks take longer in a phase, in each step or in every so many."""

    def plant(own: dict[Phase, Times], draw: np.random.Generator) -> None:
        own[phase][np.ix_(which, np.arange(every - 1, STEPS, every))] += more_ms

    often = "" if every == 1 else f", every {every}th step"
    return Case(
        name=name or f"rank {which[0]} of {ranks:,}: {more_ms:g} ms in {phase}{often}",
        ranks=ranks,
        plant=plant,
        late=frozenset(which),
        phase=phase,
        rules=frozenset({"straggler-rank"}),
        **more,  # type: ignore[arg-type]
    )


def unequal(own: dict[Phase, Times], draw: np.random.Generator) -> None:
    """Lengths of batches are drawn by each rank for itself."""
    lengths = draw.lognormal(0, 0.35, own["forward"].shape)
    for phase in ("forward", "backward"):
        own[phase] *= lengths  # type: ignore[index]


def all_at_once(own: dict[Phase, Times], draw: np.random.Generator) -> None:
    """Every 40th step is slow on all ranks: a checkpoint, a log that is written."""
    own["callbacks"][:, 39::40] += 200.0


def lonely_stalls(own: dict[Phase, Times], draw: np.random.Generator) -> None:
    """Each rank is stopped now and then, as by other programs."""
    own["forward"] += np.where(draw.random(own["forward"].shape) < 0.3 / len(own["forward"]), 15.0, 0.0)


def a_bit_of_logging(own: dict[Phase, Times], draw: np.random.Generator) -> None:
    """Rank 0 logs, as it does in each job: 2 % of the step."""
    own["logging"][0] += 1.0


def short_and_long(own: dict[Phase, Times], draw: np.random.Generator) -> None:
    """Batches are long and short in turn, alike on all ranks."""
    for phase in ("forward", "backward"):
        own[phase] *= 1 + 0.5 * (np.arange(STEPS) % 2)  # type: ignore[index]


def ended(name: str, ranks: int, first: int, how: dict[str, object], others: dict[str, object], says: str) -> Case:
    """One rank fails, hangs or is killed, and the others after it."""
    ends = {rank: how if rank == first else others for rank in range(ranks)}
    return Case(name=name, ranks=ranks, ends=ends, late=frozenset({first}), says=says)


def cases() -> list[Case]:
    """All computed jobs."""
    host = list(range(16, 24))
    killed: dict[str, object] = {"pid": GONE}
    return [
        *(late(8, [3], phase, 8.0) for phase in USUAL_MS),
        *(late(ranks, [ranks - 5], phase, 12.0) for ranks in (64, 256) for phase in ("data_wait", "backward")),
        late(2, [1], "forward", 8.0),
        late(4, [0], "callbacks", 8.0),
        late(4, [2], "data_wait", 30.0),
        late(1024, [341], "data_wait", 21.0),
        late(1024, [1000], "backward", 12.0),
        late(64, host, "forward", 8.0, name="a slow host, 8 of 64"),
        late(256, host, "data_wait", 12.0, name="a slow host, 8 of 256"),
        late(64, [5, 40], "forward", 9.0, name="two ranks of two hosts of 64"),
        late(64, list(range(2, 64, 8)), "h2d", 9.0, name="the same local rank of 8 hosts"),
        late(64, list(range(32)), "forward", 9.0, name="half of the ranks, slower GPUs"),
        late(
            64,
            list(range(1, 64, 4)),
            "forward",
            9.0,
            name="a stage of 4 on 64 ranks",
            stages=4,
            says="(all of pipeline stage 1)",
        ),
        late(8, [6], "callbacks", 600.0, every=50),
        late(64, [17], "data_wait", 600.0, every=50),
        late(256, [99], "forward", 1500.0, every=100),
        late(64, host, "data_wait", 600.0, every=40, name="a host of 64, every 40th step"),
        late(8, [3], "forward", 8.0, name="rank 3 of 8 is late, rank 5 is missing", left_out=(5,)),
        late(64, [3], "forward", 8.0, name="rank 3 of 64 is late, 10 ranks are missing", left_out=tuple(range(50, 60))),
        late(8, [3], "forward", 12.0, name="rank 3 of 8, noise of 10 %", noise=0.10),
        late(64, [3], "backward", 20.0, name="rank 3 of 64, noise of 10 %", noise=0.10),
        *(
            Case(
                name=f"batches of unequal lengths on {ranks} ranks",
                ranks=ranks,
                plant=unequal,
                rules=frozenset({"load-imbalance"}),
            )
            for ranks in (4, 64)
        ),
        *(Case(name=f"healthy, {ranks:,} ranks", ranks=ranks) for ranks in (2, 4, 8, 64, 256, 1024)),
        Case(name="healthy, 8 ranks, noise of 6 %", ranks=8, noise=0.06),
        *(Case(name=f"healthy, rank 0 of {ranks} logs", ranks=ranks, plant=a_bit_of_logging) for ranks in (8, 64)),
        *(Case(name=f"healthy, {ranks} ranks save together", ranks=ranks, plant=all_at_once) for ranks in (8, 64)),
        *(
            Case(name=f"healthy, {ranks} ranks with long and short batches", ranks=ranks, plant=short_and_long)
            for ranks in (8, 64)
        ),
        *(
            Case(name=f"healthy, {ranks} ranks are stopped now and then", ranks=ranks, plant=lonely_stalls)
            for ranks in (8, 256)
        ),
        ended("rank 5 of 8 fails, the others are killed", 8, 5, FAILURE, killed, "ValueError at train.py:12"),
        ended("rank 5 of 8 raises RuntimeError, the others are killed", 8, 5, OWN_ERROR, killed, "train.py:12"),
        ended("rank 0 of 64 raises RuntimeError, the others are killed", 64, 0, OWN_ERROR, killed, "train.py:12"),
        ended("rank 9 of 64 is killed, the others fail", 64, 9, killed, OF_PEERS, "killed"),
        ended("rank 9 of 64 fails, then the others", 64, 9, {**FAILURE, "steps": 199}, OF_PEERS, "ValueError"),
        ended(
            "rank 2 of 8 hangs", 8, 2, {"hangs_at": "train.py:12 training_step"}, {"waits": True}, "train.py:12"
        ),
        ended(
            "rank 700 of 1,024 hangs",
            1024,
            700,
            {"hangs_at": "train.py:12 training_step"},
            {"waits": True},
            "train.py:12",
        ),
    ]  # fmt: skip


def write_job(folder: Path, case: Case, seed: int) -> float | None:
    """The journals of a job, and summaries for all ranks but the first; how much longer its mean step is, in ms.

    Beside the same job without what is planted. None where that ends it.
    """
    draw = np.random.default_rng(seed)
    if case.ends:
        for rank, how in case.ends.items():
            write_rank(folder, rank, case.ranks, **how)  # type: ignore[arg-type]
        return None
    shape = (case.ranks, STEPS)
    own = {phase: usual_ms * draw.lognormal(0, case.noise, shape) for phase, usual_ms in USUAL_MS.items()}
    without_ms = _period_ms(own)
    case.plant(own, draw)
    period_ms = _period_ms(own)
    own_ns = np.stack([(ms * 1e6).astype(np.int64) for ms in own.values()])
    period_ns = (period_ms * 1e6).astype(np.int64) + len(USUAL_MS)
    for rank in range(case.ranks):
        if rank not in case.left_out:
            path = _write_journal(folder, case, rank, own_ns[:, rank], period_ns)
            if rank:
                SummaryFile().complete(path)
    return float(period_ms.mean() - without_ms.mean())


def _period_ms(own: dict[Phase, Times]) -> Times:
    """A step lasts until the slowest rank is there, and the exchange after that."""
    period_ms: Times = np.sum(list(own.values()), axis=0).max(axis=0) + EXCHANGE_MS
    return period_ms


def _write_journal(
    folder: Path, case: Case, rank: int, own_ns: npt.NDArray[np.int64], period_ns: npt.NDArray[np.int64]
) -> Path:
    header = Header(
        version=JOURNAL_VERSION,
        gpuprof="0",
        run_id=f"r{rank}",
        stage="fit",
        rank=rank,
        world_size=case.ranks,
        host=f"node{rank // ON_A_HOST}",
        pid=GONE,
        pid_space="",
        start_ns=0,
        epoch_ns=4_000_000_000 * 10**9 + rank // ON_A_HOST * 86_400 * 10**9,  # clocks of hosts are days apart
        job="j",
    )
    conditions = {"device.type": "cpu", "trainer.strategy": "DDPStrategy", "trainer.world_size": case.ranks}
    if case.stages > 1:
        conditions["trainer.pipeline_stage"] = rank % case.stages
    slots = [Slot(id=at, action=phase, phase=phase) for at, phase in enumerate(USUAL_MS)]
    slots.append(Slot(id=len(slots), action=GRADIENT_WAIT, phase="backward"))
    starts = np.cumsum(period_ns) - period_ns
    charged = np.vstack([own_ns, period_ns - own_ns.sum(axis=0)])
    steps = [
        ClosedStep(
            batch=row,
            start_ns=int(starts[row]),
            end_ns=int(starts[row] + period_ns[row]),
            global_step=row,
            epoch=0,
            flags=0 if row else FIRST_OF_EPOCH,
            charged=charged[:, row].tolist(),
            cpu_charged=None,
            run_delay_ns=-1,
        )
        for row in range(STEPS)
    ]
    end = Footer(end_ns=int(period_ns.sum()), status="finished", overhead={})
    records: list[Record] = [
        header,
        Conditions(values=conditions),  # type: ignore[arg-type]
        *slots,
        *step_blocks(steps, _refuse),
        end,
    ]
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"rank{rank}.jsonl"
    path.write_bytes(b"".join(msgspec.json.encode(one) + b"\n" for one in records))
    return path


def _refuse(step: ClosedStep, error: ValueError) -> None:
    raise AssertionError(f"{step}: {error}")


def judge(case: Case, job: JobRanks, saved_ms: float | None = None) -> Verdict:
    """Hold what was said against what was planted, and what a step saves without it."""
    rules = {one.rule for one in job.findings}
    said = job.findings[0].summary if job.findings else job.answer
    phase_right: bool | None = None
    if case.ends:
        rank_right, cause_right = job.worst[0] in case.late, case.says in job.answer
        said = job.answer
    else:
        cause_right = rules == case.rules and case.says in said
        compared = {row.rank: row.excess_ms for row in job.comparison.rows} if job.comparison else {}
        rank_right = job.comparison is not None and not case.late
        if case.late and job.findings:
            subject = job.findings[0].subject
            rank_right = subject == _named(case.late) and len(compared) == case.ranks - len(case.left_out)
        if case.phase is not None:
            words = words_of(case.phase)
            spent = f"in {words}" if words == case.phase else words
            phase_right = f"most of it {spent}." in said
    return Verdict(
        case=case.name,
        ranks=case.ranks,
        is_healthy=not case.late and not case.rules,
        rank_right=rank_right,
        cause_right=cause_right,
        phase_right=phase_right,
        said=said,
        promised_ms=next((one.gain.saved_ms_per_step for one in job.findings if one.gain is not None), None),
        saved_ms=saved_ms if case.late and not case.ends else None,
    )


def _named(ranks: frozenset[int]) -> str:
    from lightning_gpuprof.model.numbers import numbered

    return numbered("rank", sorted(ranks))


REAL = """
import sys, time
import lightning as L, torch
from torch.utils.data import DataLoader, TensorDataset
from lightning_gpuprof import GpuProfiler

class Net(L.LightningModule):
    def __init__(self, place, rank):
        super().__init__()
        self.place, self.rank, self.layer = place, rank, torch.nn.Linear(64, 10)
    def nap(self, place):
        if place == self.place and self.global_rank == self.rank:
            time.sleep(0.06)
    def training_step(self, batch, batch_idx):
        self.nap("forward")
        time.sleep(0.02)
        return torch.nn.functional.cross_entropy(self.layer(batch[0]), batch[1])
    def on_train_batch_end(self, *args):
        self.nap("callbacks")
    def on_after_batch_transfer(self, batch, dataloader_idx):
        self.nap("h2d")
        return batch
    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.01)

if __name__ == "__main__":
    torch.set_num_threads(1)
    data = TensorDataset(torch.randn(4096, 64), torch.randint(0, 10, (4096,)))
    folder, ranks = sys.argv[1], int(sys.argv[2])
    for case in sys.argv[3:]:
        place, rank = case.split("-")
        L.Trainer(
            accelerator="cpu", devices=ranks, strategy="ddp", max_epochs=1, limit_train_batches=60, logger=False,
            enable_checkpointing=False, enable_progress_bar=False,
            callbacks=[GpuProfiler(dirpath=f"{folder}/{ranks}-{case}", reports=["json"], windows=[], nvml=False)],
        ).fit(Net(place, int(rank)), DataLoader(data, batch_size=16))
"""
REAL_CASES = {2: ("forward-1", "callbacks-0", "none-0"), 4: ("h2d-2", "forward-3", "none-0")}


def real(folder: Path) -> list[Verdict]:
    """Fits of processes with gloo."""
    program = folder / "program.py"
    program.write_text(REAL)
    found = []
    for ranks, names in REAL_CASES.items():
        subprocess.run([sys.executable, str(program), str(folder), str(ranks), *names], check=True, capture_output=True)
        for name in names:
            place, _, rank = name.partition("-")
            case = Case(name=f"gloo, {ranks} ranks, healthy", ranks=ranks)
            if place != "none":
                title = f"gloo, rank {rank} of {ranks}: 60 ms in {place}"
                case = late(ranks, [int(rank)], place, 60.0, name=title)  # type: ignore[arg-type]
            found.append(judge(case, job_ranks(folder / f"{ranks}-{name}")))
    return found


def summary(verdicts: Sequence[Verdict]) -> dict[str, dict[str, int]]:
    """How often what is right."""
    sick = [one for one in verdicts if not one.is_healthy]
    healthy = [one for one in verdicts if one.is_healthy]
    phases = [one.phase_right for one in verdicts if one.phase_right is not None]
    errors = [one.cost_error for one in verdicts if one.cost_error is not None]
    return {
        "rank": {"right": sum(one.rank_right for one in sick), "of": len(sick)},
        "cause": {"right": sum(one.cause_right for one in sick), "of": len(sick)},
        "phase": {"right": sum(phases), "of": len(phases)},
        f"cost within {MOST_COST_ERROR:.0%}": {
            "right": sum(abs(error) <= MOST_COST_ERROR for error in errors),
            "of": len(errors),
        },
        "healthy and silent": {"right": sum(one.cause_right for one in healthy), "of": len(healthy)},
    }


def tables(verdicts: Sequence[Verdict]) -> list[Table]:
    """The results for a person."""
    of_all = Table(title="What `gpuprof ranks` says first")
    for heading in ("what", "right", "of"):
        of_all.add_column(heading, justify="left" if heading == "what" else "right")
    for what, counts in summary(verdicts).items():
        of_all.add_row(what, str(counts["right"]), str(counts["of"]))
    wrong = Table(title="Wrong")
    for heading in ("case", "rank", "cause", "phase", "said"):
        wrong.add_column(heading)
    for one in verdicts:
        if not (one.rank_right and one.cause_right and one.phase_right is not False):
            marks = ["" if right is None else "yes" if right else "NO" for right in (
                one.rank_right, one.cause_right, one.phase_right)]  # fmt: skip
            wrong.add_row(one.case, *marks, one.said)
    return [of_all, *([wrong] if wrong.row_count else [])]


def main(arguments: Sequence[str] | None = None) -> int:
    """Plant, judge, print, write.

    Args:
        arguments: The command line.
    """
    parser = command_line("rank_truth", __doc__, seed="of the noise")
    parser.add_argument("--real", action="store_true", help="fits of 2 and 4 processes, too")
    parser.add_argument("--only", default="", help="cases whose name has this")
    options = parser.parse_args(arguments)
    verdicts = []
    for case in (case for case in cases() if options.only in case.name):
        with tempfile.TemporaryDirectory(prefix="gpuprof-benchmark-") as folder:
            saved_ms = write_job(Path(folder) / "job", case, options.seed)
            verdicts.append(judge(case, job_ranks(Path(folder) / "job"), saved_ms))
    if options.real:
        with tempfile.TemporaryDirectory(prefix="gpuprof-benchmark-") as folder:
            verdicts += real(Path(folder))
    console = wide_console()
    for table in tables(verdicts):
        console.print(table)
    write_json(
        options.json,
        "rank_truth",
        summary=summary(verdicts),
        seed=options.seed,
        cases=[asdict(one) for one in verdicts],
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
