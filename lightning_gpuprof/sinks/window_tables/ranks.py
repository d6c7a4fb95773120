"""Tables that compare ranks."""

from collections.abc import Mapping

from lightning_gpuprof.model import numbers
from lightning_gpuprof.model.trace.analysis import TraceDiagnosis
from lightning_gpuprof.model.trace.ranks import LateRank, RanksComparison
from lightning_gpuprof.sinks import plain, wording
from lightning_gpuprof.sinks.tables import (
    COUNT,
    FIGURE,
    PERCENT,
    SENTENCE,
    SIZE,
    US_AS_MS,
    Column,
    Table,
    bar,
    name,
    sentence_table,
)
from lightning_gpuprof.sinks.window_tables.short_names import ms

MAX_RANKS = 8
"""Rows of ranks where they are shown beside other tables."""

_NO_MATCH = "No collective appears in more than one trace."
_TRANSFER = "shortest duration among the ranks: the last to arrive does not wait"
_WAITING = "duration beyond the transfer: waiting for ranks that came later"


def all_tables(comparison: RanksComparison) -> list[Table]:
    """The ranks side by side, who comes late, and the collectives with most waiting."""
    return [
        rank_note_table(comparison),
        rank_table(comparison, MAX_RANKS),
        late_rank_table(comparison),
        rank_kind_table(comparison),
        matched_collective_table(comparison),
        unmatched_collective_table(comparison),
    ]


def rank_table(comparison: RanksComparison, most: int | None = None) -> Table:
    """What each rank did, and who waited for whom.

    Args:
        comparison: Of the ranks.
        most: Rows; of more ranks those that the others waited for longest. None: all.

    Returns:
        By rank, or most waited for first if some are left out; times in ms.
    """
    rows, title = comparison.ranks, "Ranks"
    largest = max((rank.waiting_us or 0.0 for rank in rows), default=0.0)
    if most is not None and len(rows) > most:
        rows = tuple(sorted(rows, key=lambda rank: -(rank.caused_us or 0.0))[:most])
        title = f"The {most} of {len(comparison.ranks)} ranks that the others waited for longest"
    return Table.of(
        title,
        rows,
        Column("rank", lambda rank: rank.rank, FIGURE, hover=lambda rank: plain.name(rank.trace)),
        Column("computing", lambda rank: rank.computation_us, US_AS_MS, help="kernels other than communication"),
        Column("idle", lambda rank: rank.idle_us, US_AS_MS, help="no kernel and no copy ran"),
        Column("transfer", lambda rank: rank.transfer_us, US_AS_MS, help=_TRANSFER),
        Column("waiting", lambda rank: rank.waiting_us, US_AS_MS, help=_WAITING),
        bar(lambda rank: (rank.waiting_us or 0.0) / largest if largest > 0 else 0.0),
        Column(
            "in the first",
            lambda rank: rank.waiting_in_first_us,
            US_AS_MS,
            help="waiting in the first collective, where ranks may have entered the window at different times",
        ),
        Column("last", lambda rank: rank.last, COUNT, help="collectives in which it was the last to arrive"),
        Column(
            "caused",
            lambda rank: rank.caused_us,
            US_AS_MS,
            help="time that the other ranks waited in those collectives",
        ),
        absent="No rank was given.",
    )


def rank_finding_table(comparison: RanksComparison, diagnoses: Mapping[str, TraceDiagnosis]) -> Table:
    """What each rank is bound by, in a line each.

    Args:
        comparison: Of the ranks.
        diagnoses: What the rules say of the traces, by their names.

    Returns:
        By rank; of more than :data:`MAX_RANKS` those that the others waited for longest.
    """
    most = sorted(comparison.ranks, key=lambda rank: -(rank.caused_us or 0.0))[:MAX_RANKS]
    rows = [(rank, diagnoses[rank.trace]) for rank in comparison.ranks if rank in most and rank.trace in diagnoses]
    return Table.of(
        "What each rank is bound by",
        rows,
        Column("rank", lambda row: row[0].rank, FIGURE),
        Column("verdict", lambda row: row[1].verdict.kind),
        Column("first finding", lambda row: _first_finding(row[1]), SENTENCE),
        absent="No trace was judged.",
    )


def _first_finding(found: TraceDiagnosis) -> str:
    if not found.findings:
        return numbers.ABSENT
    first = found.findings[0]
    gain = f", {wording.gain(first, first.gain)}" if first.gain is not None else ""
    return plain.sentence(f"{first.title or first.rule}{gain}")


def rank_kind_table(comparison: RanksComparison) -> Table:
    """Transfer and waiting by kind of collective."""
    return Table.of(
        "Transfer and waiting of all ranks",
        comparison.kinds,
        Column("collective", lambda one: one.kind),
        Column("count", lambda one: one.count, COUNT, help="one collective on several ranks counts once"),
        Column("transfer", lambda one: one.transfer_us, US_AS_MS, help=_TRANSFER),
        Column("waiting", lambda one: one.waiting_us, US_AS_MS, help=_WAITING),
        Column("waiting", lambda one: one.waiting_ratio, PERCENT, help="of transfer and waiting"),
        absent=_NO_MATCH,
    )


def matched_collective_table(comparison: RanksComparison) -> Table:
    """The collectives with most waiting."""
    left_out = f" ({comparison.collectives_left_out} more)" if comparison.collectives_left_out else ""
    return Table.of(
        f"Collectives with the most waiting{left_out}",
        comparison.collectives,
        Column("step", lambda one: one.step or numbers.ABSENT, name(20)),
        Column("collective", lambda one: one.kind),
        Column("number", lambda one: one.number, FIGURE, help="index among those of its kind and size in the step"),
        Column("size", lambda one: one.message_bytes, SIZE),
        Column("ranks", lambda one: len(one.ranks), FIGURE),
        Column("transfer", lambda one: one.transfer_us, US_AS_MS, help=_TRANSFER),
        Column("skew", lambda one: max(one.waiting_us), US_AS_MS, help="from the first to the last rank to arrive"),
        Column("waiting", lambda one: sum(one.waiting_us), US_AS_MS, help="of all ranks together"),
        Column("late rank", lambda one: one.late_rank, FIGURE),
        absent=_NO_MATCH,
    )


def unmatched_collective_table(comparison: RanksComparison) -> Table:
    """Collectives that could not be matched."""
    return Table.of(
        "Unmatched collectives",
        comparison.unmatched,
        Column("step", lambda one: one.step or numbers.ABSENT, name(20)),
        Column("collective", lambda one: one.kind),
        Column("size", lambda one: one.message_bytes, SIZE),
        Column(
            "on each rank", lambda one: ", ".join(map(str, one.counts)), name(30), help="count on each rank, in order"
        ),
        Column("why", lambda one: one.why, SENTENCE),
        absent="Every collective was matched across the ranks." if comparison.matched else _NO_MATCH,
    )


def late_rank_table(comparison: RanksComparison) -> Table:
    """Kernel classes on which the late rank spends more than the others."""
    late = comparison.late
    title = (
        "Computation of the late rank" if late is None else f"Computation of rank {late.rank} compared with the others"
    )
    return Table.of(
        title,
        late.excess_by_class if late else (),
        Column("class of kernels", lambda one: one.kernel_class),
        Column("this rank", lambda one: one.rank_us, US_AS_MS),
        Column("others", lambda one: one.others_median_us, US_AS_MS, help="median"),
        Column("more", lambda one: one.excess_us, US_AS_MS),
        absent="No rank is late." if late is None else "It computes no longer than the others.",
    )


def rank_note_table(comparison: RanksComparison) -> Table:
    """Who is late, and what to mind."""
    sentences = ([] if comparison.late is None else [_late_rank_name(comparison.late)]) + list(comparison.notes)
    return sentence_table("Notes on the ranks", sentences, "No rank waited for another.")


def _late_rank_name(late: LateRank) -> str:
    waits = (
        f"Rank {late.rank} waits least, {ms(late.waiting_us)} compared with {ms(late.others_waiting_us)} (median of the"
        f" others), and came last to {numbers.exact_percent(late.last_ratio)} of the collectives"
    )
    if not late.consistent:
        return f"{waits}: ranks are late in turn, none more than the others."
    if late.excess_between_us is None or late.excess_computation_us is None or late.excess_between_us <= 0:
        return f"{waits}: the others wait for it. Between collectives it takes no longer than they do."
    computing = max(late.excess_computation_us, 0.0)
    longer = computing > late.excess_between_us / 2
    where = "its kernels take longer" if longer else "otherwise its GPU waits for the host, or copies"
    return (
        f"{waits}: the others wait for it. Between collectives it takes {ms(late.excess_between_us)} more than they do,"
        f" {ms(computing)} of it computing: {where}."
    )
