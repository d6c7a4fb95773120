"""Whether what was said about a case is right."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

from lightning_gpuprof.rules.host_causes import HOST_RATIO
from truths.case import Case
from truths.running import RunOutcome

_LOUD = ("warning", "critical")
SYMPTOMS: Mapping[str, tuple[str, ...]] = {
    "single-process-loading": ("input-bound",),
    "too-few-workers": ("input-bound",),
    "small-kernels": ("launch-bound", "compile-absent"),
    "launch-bound": ("compile-absent",),
}
"""Rules that may speak beside another one, because they name its symptom."""


OF_A_FULL_MACHINE = ("cpu-contention", "cpu-oversubscription", "host-cpu-quota")
"""Rules that are right, whatever was planted, where the main thread had to wait for a CPU; there, they take no
place unless they are what is expected."""


@dataclass(frozen=True, kw_only=True)
class Judgement:
    """One run of one case, judged.

    Attributes:
        case: Name.
        group: Of the case.
        said: What the report said; None if the run failed.
        ranks: For each planted fault, where the first rule that names it stands, from 1; None if none does. Findings
            that are only the symptom of one before them are not counted as places.
        waiting: For each planted fault, whether its rules do not exist yet.
        verdict_right: None: not judged.
        false_alarms: Warnings and critical findings that nothing planted explains; of a healthy run also what
            rules that had to judge say as information.
        not_judged: Rules that had to judge and lacked their signal.
        error: Why there is no report.
    """

    case: str
    group: str
    said: RunOutcome | None
    ranks: tuple[int | None, ...] = ()
    waiting: tuple[bool, ...] = ()
    verdict_right: bool | None = None
    false_alarms: tuple[str, ...] = ()
    not_judged: tuple[str, ...] = ()
    error: str = ""
    seconds: float = 0.0
    repetition: int = 0


def judge(
    case: Case, said: RunOutcome, *, rules: Collection[str], seconds: float = 0.0, repetition: int = 0
) -> Judgement:
    """Hold what was said against the truth.

    Args:
        case: The truth.
        said: The report.
        rules: Ids of the rules that exist.
        seconds: That the run took.
        repetition: Which one it was.
    """
    named = {rule for names in case.expected for rule in names}
    order = _places(said, without=set(OF_A_FULL_MACHINE) - named if _disturbed(said) else set())
    known = named | set(case.allowed)
    known |= set(OF_A_FULL_MACHINE) if _disturbed(said) else set()
    known |= {symptom for rule in known for symptom in SYMPTOMS.get(rule, ())}
    silent = case.must_judge if case.group == "healthy" else ()
    waiting = tuple(not any(name in rules for name in names) for names in case.expected)
    return Judgement(
        case=case.name,
        group=case.group,
        said=said,
        ranks=tuple(_rank(names, order) for names in case.expected),
        waiting=waiting,
        verdict_right=_right(case, said),
        false_alarms=tuple(
            f.rule for f in said.findings if f.rule not in known and (f.severity in _LOUD or f.rule in silent)
        ),
        not_judged=tuple(rule for rule in case.must_judge if rule in said.not_evaluated),
        seconds=seconds,
        repetition=repetition,
    )


def _right(case: Case, said: RunOutcome) -> bool | None:
    if not case.verdicts or said.verdict in case.verdicts:
        return True if case.verdicts else None
    # Where others took the CPUs, that bounds a run that only computes.
    return "compute-bound" in case.verdicts and said.verdict == "host-bound" and _disturbed(said)


def _disturbed(said: RunOutcome) -> bool:
    return said.run_delay_ratio is not None and said.run_delay_ratio >= HOST_RATIO


def _places(said: RunOutcome, *, without: Collection[str]) -> dict[str, int]:
    """Rule → its place; a symptom shares the place of what explains it."""
    places: dict[str, int] = {}
    taken = 0
    for finding in said.findings:
        if finding.rule in without:
            continue
        explained = any(finding.rule in SYMPTOMS.get(rule, ()) for rule in places)
        taken += 0 if explained else 1
        places.setdefault(finding.rule, taken)
    return places


def _rank(names: Sequence[str], places: Mapping[str, int]) -> int | None:
    found = [places[name] for name in names if name in places]
    return min(found) if found else None


@dataclass(kw_only=True)
class Count:
    """How many of how many."""

    right: int = 0
    of: int = 0
    missed: list[str] = field(default_factory=list)

    def add(self, right: bool, name: str) -> None:
        """Count one."""
        self.of += 1
        self.right += right
        if not right:
            self.missed.append(name)

    def __str__(self) -> str:
        return f"{self.right} of {self.of}"


@dataclass(kw_only=True)
class Summary:
    """The whole matrix in numbers.

    Attributes:
        first: Single faults whose rule is the first finding.
        in_three: The same, among the first three; pairs count once per fault.
        verdicts: Verdicts of the right kind.
        healthy: Runs without a fault that have no warning.
        decoys: The same of decoys.
        precise: Runs with faults that have no warning besides.
        waiting: Faults for which no rule exists yet.
        failed: Runs without a report.
    """

    first: Count = field(default_factory=Count)
    in_three: Count = field(default_factory=Count)
    verdicts: Count = field(default_factory=Count)
    healthy: Count = field(default_factory=Count)
    decoys: Count = field(default_factory=Count)
    precise: Count = field(default_factory=Count)
    waiting: list[str] = field(default_factory=list)
    failed: list[str] = field(default_factory=list)


def summarise(judgements: Sequence[Judgement]) -> Summary:
    """Count."""
    summary = Summary()
    for one in judgements:
        if one.said is None:
            summary.failed.append(one.case)
            continue
        if one.verdict_right is not None:
            summary.verdicts.add(one.verdict_right, f"{one.case} ({one.said.verdict})")
        quiet = not one.false_alarms and not one.not_judged
        alarms = (
            f"{one.case} ({', '.join((*one.false_alarms, *(f'{rule} could not judge' for rule in one.not_judged)))})"
        )
        {"healthy": summary.healthy, "decoy": summary.decoys}.get(one.group, summary.precise).add(quiet, alarms)
        for place, (rank, waits) in enumerate(zip(one.ranks, one.waiting, strict=True)):
            if waits:
                summary.waiting.append(one.case)
                continue
            summary.in_three.add(rank is not None and rank <= 3, one.case)
            if place == 0:
                summary.first.add(rank == 1, one.case)
    return summary
