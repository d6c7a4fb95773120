"""Tables of ranks: who waited for whom, and what is said of the late one."""

import re

import msgspec
import window_samples
from empty_structs import empty
from parsed_page import Page
from table_texts import texts

from lightning_gpuprof.model.finding import Finding, Gain, Verdict
from lightning_gpuprof.model.trace.analysis import TraceDiagnosis
from lightning_gpuprof.model.trace.ranks import (
    ClassExcess,
    KindTimes,
    LateRank,
    MatchedCollective,
    RanksComparison,
    RankTimes,
    UnmatchedCollectives,
)
from lightning_gpuprof.sinks.ranks_html import render_ranks_html
from lightning_gpuprof.sinks.window_tables import ranks as tables


def rank(number: int, waiting_us: float) -> RankTimes:
    return RankTimes(
        rank=number,
        trace=f"rank{number}.json",
        device="0",
        window_us=10_000.0,
        computation_us=4000.0,
        communication_us=2000.0,
        idle_us=3000.0,
        matched=2,
        unmatched=1,
        transfer_us=500.0,
        waiting_us=waiting_us,
        waiting_in_first_us=100.0,
        last=1,
        caused_us=700.0,
        between_us=1000.0,
        between_computation_us=900.0,
        clock_offset_us=0.0,
    )


LATE = LateRank(
    rank=1,
    waiting_us=0.0,
    others_waiting_us=1500.0,
    last_ratio=0.75,
    consistent=True,
    excess_between_us=400.0,
    excess_computation_us=350.0,
    excess_by_class=(ClassExcess(kernel_class="gemm", rank_us=500.0, others_median_us=150.0, excess_us=350.0),),
)
FOUND = RanksComparison(
    world_size=2,
    ranks=(rank(0, 1500.0), rank(1, 0.0)),
    missing_ranks=(),
    matched=2,
    kinds=(KindTimes(kind="all_reduce", count=2, transfer_us=1000.0, waiting_us=1500.0, waiting_ratio=0.6),),
    collectives=(
        empty(
            MatchedCollective,
            message_bytes=4096,
            step="ProfilerStep#3",
            ranks=(0, 1),
            transfer_us=500.0,
            waiting_us=(1500.0, 0.0),
            late_rank=1,
        ),
    ),
    collectives_left_out=1,
    unmatched=(
        UnmatchedCollectives(
            kind="broadcast", group=None, message_bytes=None, step=None, counts=(1, 0), why="on one rank only"
        ),
    ),
    ends_apart_us=2.0,
    clocks_agree=True,
    late=LATE,
    notes=("2 of 4 ranks are here.",),
)


def said_of(late: LateRank) -> str:
    return texts(tables.rank_note_table(msgspec.structs.replace(FOUND, late=late)))[0][0]


def test_ranks_show_transfer_and_waiting() -> None:
    table = tables.rank_table(FOUND)
    assert texts(table)[0] == ["0", "4", "3", "0.500", "1.50", "", "0.100", "1", "0.700"]
    assert [row[5].ratio for row in table.rows] == [1.0, 0.0]
    assert table.rows[0][0].help == "rank0.json"


def test_what_a_rank_did_not_measure_is_absent_in_the_table_and_on_the_page() -> None:
    cpu = empty(RankTimes, rank=2, trace="rank2.json", matched=0, unmatched=0)
    some = msgspec.structs.replace(FOUND, ranks=(*FOUND.ranks, cpu))
    assert texts(tables.rank_table(some))[2] == ["2", "-", "-", "-", "-", "", "-", "-", "-"]
    (heat,) = re.findall(r'<table class="heat">.*?</table>', render_ranks_html(some, {}, {}), flags=re.DOTALL)
    assert [Page(cell).text for cell in re.findall(r"<td.*?</td>", heat)[-4:]] == ["-"] * 4
    alone = msgspec.structs.replace(FOUND, ranks=(cpu, cpu))
    assert 'class="heat"' not in render_ranks_html(alone, {}, {})


def test_collectives_show_their_late_rank() -> None:
    table = tables.matched_collective_table(FOUND)
    assert table.title == "Collectives with the most waiting (1 more)"
    assert texts(table) == [["ProfilerStep#3", "all_reduce", "0", "4 KiB", "2", "0.500", "1.50", "1.50", "1"]]
    assert texts(tables.rank_kind_table(FOUND)) == [["all_reduce", "2", "1", "1.50", "60.0 %"]]


def test_collectives_without_counterpart_say_why() -> None:
    assert texts(tables.unmatched_collective_table(FOUND)) == [["-", "broadcast", "-", "1, 0", "on one rank only"]]


def test_the_late_rank_is_said_with_its_reason() -> None:
    assert "Rank 1 waits least, 0 ms compared with 1.50 ms" in said_of(LATE)
    assert said_of(LATE).endswith("its kernels take longer.")
    by_host = msgspec.structs.replace(LATE, excess_computation_us=10.0)
    assert "its GPU waits for the host" in said_of(by_host)
    in_turn = msgspec.structs.replace(LATE, last_ratio=0.4, consistent=False)
    assert "late in turn" in said_of(in_turn)
    assert "the others wait for it" not in said_of(in_turn)
    assert texts(tables.late_rank_table(FOUND)) == [["gemm", "0.500", "0.150", "0.350"]]


def test_nothing_matched_is_said_in_sentences() -> None:
    nothing = msgspec.structs.replace(
        FOUND, ranks=(), matched=0, kinds=(), collectives=(), unmatched=(), late=None, notes=()
    )
    for make in (
        tables.rank_table,
        tables.rank_kind_table,
        tables.matched_collective_table,
        tables.unmatched_collective_table,
        tables.late_rank_table,
        tables.rank_note_table,
    ):
        assert make(nothing).rows == ()
        assert make(nothing).absent.endswith(".")


HOSTILE = '<script>alert(1)</script>" onload="x \u202egnp.\x07'


def test_the_page_has_the_ranks_as_a_map_and_as_numbers() -> None:
    text = render_ranks_html(FOUND, {"rank0.json": window_samples.analysis()}, {})
    parsed = Page(text)
    (heat,) = re.findall(r'<table class="heat">.*?</table>', text, flags=re.DOTALL)
    head, *rows = re.findall(r"<tr>(.*?)</tr>", heat, flags=re.DOTALL)
    waiting = [Page(cell).text for cell in re.findall(r"<th.*?</th>", head)].index("waiting")
    cells = [re.findall(r"<t[hd].*?</t[hd]>", row) for row in rows]
    assert [Page(row[0]).text for row in cells] == ["rank 0", "rank 1"]
    assert [Page(row[waiting]).text for row in cells] == ["1.50", "0"]
    assert ["--more" in cells[0][waiting], "--less" in cells[1][waiting]] == [True, True]
    assert "Rank 1 waits least" in parsed.text
    assert "broadcast" in parsed.text
    assert not re.search(r"(https?|wss?|ftp)://", text)


def test_names_of_traces_are_data_on_the_page_of_ranks() -> None:
    ranks = tuple(msgspec.structs.replace(rank, trace=HOSTILE) for rank in FOUND.ranks)
    found = msgspec.structs.replace(FOUND, ranks=ranks, notes=(HOSTILE,))
    text = render_ranks_html(found, {HOSTILE: window_samples.analysis()}, {})
    assert "<script>alert" not in text
    assert '" onload="' not in text
    assert "\u202e" not in text
    assert "\x07" not in text


def test_the_page_shows_each_finding_once_where_it_costs_most() -> None:
    def diagnosis(saved_ms: float) -> TraceDiagnosis:
        finding = Finding(
            rule="launch-bound",
            severity="critical",
            subject="host",
            summary=f"It costs {saved_ms} ms.",
            advice="Look.",
            evidence=(),
            gain=Gain(saved_ms_per_step=saved_ms, speedup_max=2.0),
        )
        verdict = Verdict(kind="host-bound", summary="Host-bound.")
        return TraceDiagnosis(verdict=verdict, findings=(finding,), need_a_run=())

    found = {"rank0.json": diagnosis(1.0), "rank1.json": diagnosis(3.0)}
    text = render_ranks_html(FOUND, {}, found)
    assert "It costs 3.0 ms." in text
    assert "It costs 1.0 ms." not in text
    assert "In 2 of 2 traces" in text
    assert text.index('id="findings"') < text.index('id="summary"')
