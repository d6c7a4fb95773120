"""The comparison of ranks flows in, tables for people flow out."""

from __future__ import annotations

from lightning_gpuprof.model.trace.ranks import LateRank, RanksComparison
from lightning_gpuprof.sinks import numbers, plain
from lightning_gpuprof.sinks.tables import Cell, Column, Table, sentence_table

_NO_MATCH = "No collective was found in two of the traces."
_TRANSFER = Column(
    title="transfer",
    unit="ms",
    term="the shortest duration among the ranks: who comes last waits for no one",
    numeric=True,
)
_WAITING = Column(
    title="waiting", unit="ms", term="duration without the transfer: for ranks that came later", numeric=True
)


def rank_table(comparison: RanksComparison) -> Table:
    """What each rank did, and who waited for whom."""
    largest = max((rank.waiting_us for rank in comparison.ranks), default=0.0)
    return Table(
        title="Ranks",
        columns=(
            Column(title="rank", numeric=True),
            Column(title="computing", unit="ms", term="union of kernels that do not communicate", numeric=True),
            Column(title="idle", unit="ms", term="the device's window without kernels and copies", numeric=True),
            _TRANSFER,
            _WAITING,
            Column(title="", bar=True),
            Column(
                title="in first",
                unit="ms",
                term="of the waiting: in the first collective, where ranks may be apart from before the window",
                numeric=True,
            ),
            Column(title="last", term="collectives to which the rank came last", numeric=True),
            Column(title="caused", unit="ms", term="waiting of all other ranks in those", numeric=True),
        ),
        rows=tuple(
            (
                Cell(text=str(rank.rank), term=plain.name(rank.trace)),
                Cell(text=numbers.fixed(rank.computation_us / 1e3)),
                Cell(text=numbers.fixed(rank.idle_us / 1e3)),
                Cell(text=numbers.fixed(rank.transfer_us / 1e3)),
                Cell(text=numbers.fixed(rank.waiting_us / 1e3)),
                Cell(text="", ratio=rank.waiting_us / largest if largest > 0 else 0.0),
                Cell(text=numbers.fixed(rank.waiting_in_first_us / 1e3)),
                Cell(text=numbers.count(rank.last)),
                Cell(text=numbers.fixed(rank.caused_us / 1e3)),
            )
            for rank in comparison.ranks
        ),
        absent="No rank was given.",
    )


def rank_kind_table(comparison: RanksComparison) -> Table:
    """Transfer and waiting by kind of collective."""
    return Table(
        title="Transfer and waiting of all ranks",
        columns=(
            Column(title="collective"),
            Column(title="count", term="one on several ranks counts once", numeric=True),
            _TRANSFER,
            _WAITING,
            Column(title="waiting", term="of both", numeric=True),
        ),
        rows=tuple(
            (
                Cell(text=one.kind),
                Cell(text=numbers.count(one.count)),
                Cell(text=numbers.fixed(one.transfer_us / 1e3)),
                Cell(text=numbers.fixed(one.waiting_us / 1e3)),
                Cell(text=numbers.percent(one.waiting_ratio)),
            )
            for one in comparison.kinds
        ),
        absent=_NO_MATCH,
    )


def matched_collective_table(comparison: RanksComparison) -> Table:
    """The collectives with most waiting."""
    left_out = f" ({comparison.collectives_left_out} more)" if comparison.collectives_left_out else ""
    return Table(
        title=f"Collectives with most waiting{left_out}",
        columns=(
            Column(title="step"),
            Column(title="collective"),
            Column(title="number", term="which of its kind and size in the step, from 0", numeric=True),
            Column(title="size", numeric=True),
            Column(title="ranks", numeric=True),
            _TRANSFER,
            Column(title="skew", unit="ms", term="from the first rank's coming to the last one's", numeric=True),
            Column(title="waiting", unit="ms", term="of all ranks together", numeric=True),
            Column(title="late rank", numeric=True),
        ),
        rows=tuple(
            (
                Cell(text=plain.name(one.step or numbers.ABSENT, 20)),
                Cell(text=one.kind),
                Cell(text=str(one.number)),
                Cell(text=numbers.size(one.message_bytes)),
                Cell(text=str(len(one.ranks))),
                Cell(text=numbers.fixed(one.transfer_us / 1e3)),
                Cell(text=numbers.fixed(max(one.waiting_us) / 1e3)),
                Cell(text=numbers.fixed(sum(one.waiting_us) / 1e3)),
                Cell(text=numbers.ABSENT if one.late_rank is None else str(one.late_rank)),
            )
            for one in comparison.collectives
        ),
        absent=_NO_MATCH,
    )


def unmatched_collective_table(comparison: RanksComparison) -> Table:
    """Collectives that could not be matched."""
    return Table(
        title="Collectives without counterpart",
        columns=(
            Column(title="step"),
            Column(title="collective"),
            Column(title="size", numeric=True),
            Column(title="on each rank", term="how many, in the order of the ranks"),
            Column(title="why"),
        ),
        rows=tuple(
            (
                Cell(text=plain.name(one.step or numbers.ABSENT, 20)),
                Cell(text=one.kind),
                Cell(text=numbers.size(one.message_bytes)),
                Cell(text=plain.name(", ".join(map(str, one.counts)), 30)),
                Cell(text=plain.sentence(one.why)),
            )
            for one in comparison.unmatched
        ),
        absent="Every collective was found in the other ranks." if comparison.matched else _NO_MATCH,
    )


def late_rank_table(comparison: RanksComparison) -> Table:
    """Kernel classes on which the late rank spends more than the others."""
    late = comparison.late
    title = "Computation of the late rank" if late is None else f"Computation of rank {late.rank} against the others"
    return Table(
        title=title,
        columns=(
            Column(title="class of kernels"),
            Column(title="this rank", unit="ms", numeric=True),
            Column(title="others", unit="ms", term="median", numeric=True),
            Column(title="more", unit="ms", numeric=True),
        ),
        rows=tuple(
            (
                Cell(text=one.kernel_class),
                Cell(text=numbers.fixed(one.rank_us / 1e3)),
                Cell(text=numbers.fixed(one.others_median_us / 1e3)),
                Cell(text=numbers.fixed(one.excess_us / 1e3)),
            )
            for one in (late.excess_by_class if late else ())
        ),
        absent="No rank is late." if late is None else "It computes no longer than the others.",
    )


def rank_note_table(comparison: RanksComparison) -> Table:
    """Who is late, and what to mind."""
    sentences = ([] if comparison.late is None else [_who_is_late(comparison.late)]) + list(comparison.notes)
    return sentence_table("Notes on the ranks", sentences, "Nobody waited for anyone.")


def _who_is_late(late: LateRank) -> str:
    waits = (
        f"Rank {late.rank} waits least, {_ms(late.waiting_us)} against {_ms(late.others_waiting_us)} (median of the"
        f" others), and came last to {numbers.percent(late.last_ratio)} of the collectives"
    )
    if not late.consistent:
        return f"{waits}: ranks are late in turn, none alone is to blame."
    if late.excess_between_us is None or late.excess_computation_us is None or late.excess_between_us <= 0:
        return f"{waits}: the others wait for it. Between collectives it takes no longer than they."
    computing = max(late.excess_computation_us, 0.0)
    longer = computing > late.excess_between_us / 2
    where = "its kernels take longer" if longer else "the rest its device waits for its host, or copies"
    return (
        f"{waits}: the others wait for it. Between collectives it takes {_ms(late.excess_between_us)} more than they,"
        f" {_ms(computing)} of it computing: {where}."
    )


def _ms(us: float) -> str:
    return f"{numbers.fixed(us / 1e3)} ms"
