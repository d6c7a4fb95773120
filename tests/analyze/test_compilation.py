"""What a journal's compilations say: steps, costs, places, and which steps statistics leave out."""

import pytest
from built_journals import MS, build, charge, journal

from lightning_gpuprof.analyze.journal_columns import Journal
from lightning_gpuprof.model.compilation import CompileFacts
from lightning_gpuprof.model.journal import Compilation, CompilerCounts


def at_step(of: Journal, index: int, *, ms: int = 50, **fields: object) -> None:
    """A compilation within a step, which takes so much longer."""
    charge(of, 2, index, ms * MS)
    values = {"id": "0/0", "kind": "frame", "function": "forward", "file": "net.py", "line": 3, **fields}
    start_ns = int(of.steps.start_ns[index]) + MS
    of.compilations.append(Compilation(start_ns=start_ns, duration_ns=ms * MS, **values))  # type: ignore[arg-type]


def facts(of: Journal) -> CompileFacts:
    return build(of).compile


def test_a_run_without_compilations_says_none() -> None:
    assert build(journal()).compile is None


def test_recompiles_have_step_reason_and_cost_with_their_backward_pass() -> None:
    of = journal(100)
    at_step(of, 0)
    at_step(of, 60, id="0/1", reason="0/0: tensor 'x' size mismatch")
    at_step(of, 60, id="0/1", kind="backward", function="", ms=20)
    found = facts(of)
    assert [(r.function, r.batch, r.reason, r.steady) for r in found.recompiles] == [
        ("forward", 60, "tensor 'x' size mismatch", True)
    ]
    assert found.recompiles[0].cost_s == pytest.approx(0.07)
    assert (found.recompile_count, found.steady_recompile_count) == (1, 1)
    assert found.steps_count == 2
    assert found.steps_excess_s == pytest.approx(0.12)


def test_steps_that_compile_are_not_steady_ones() -> None:
    of = journal(100)
    at_step(of, 60, id="0/1")
    built = build(of)
    assert built.steps.labels["compiled"] == 1
    assert built.steps.period_ms.max == pytest.approx(10)


def test_a_run_that_compiles_in_most_steps_is_what_it_is() -> None:
    of = journal(100)
    for index in range(80):
        at_step(of, index, id=f"0/{index}")
    assert build(of).steps.labels["compiled"] == 0


def test_a_compilation_outside_of_the_steps_has_no_step() -> None:
    of = journal(50)
    of.compilations.append(Compilation(start_ns=MS, duration_ns=MS, id="0/1", kind="frame", function="f", reason="r"))
    assert facts(of).recompiles[0].batch is None
    assert facts(of).steps_count == 0


def test_wall_time_of_compiling_counts_overlap_once() -> None:
    of = journal(50)
    for start, length in ((0, 10), (5, 10), (30, 1)):
        of.compilations.append(Compilation(start_ns=start * MS, duration_ns=length * MS, id="0/0", kind="frame"))
    assert facts(of).compile_s == pytest.approx(0.016)


def broken(function: str, line: int, number: int, *, version: int = 0, reasons: tuple[str, ...] = ()) -> Compilation:
    id_of = f"{number}/{version}"
    return Compilation(
        start_ns=0, duration_ns=1, id=id_of, kind="frame", function=function, file="a.py", line=line, breaks=[*reasons]
    )


def test_graph_breaks_have_the_line_at_which_the_function_goes_on() -> None:
    of = journal(50)
    of.compilations = [
        broken("forward", 10, 0, reasons=("graph_break",)),
        broken("helper", 6, 1, reasons=("graph_break",)),
        broken("torch_dynamo_resume_in_helper_at_8", 8, 2),
        broken("torch_dynamo_resume_in_forward_at_12", 12, 3, reasons=("print",)),
        broken("torch_dynamo_resume_in_forward_at_13", 13, 4, reasons=("of dynamo's own",)),
        broken("forward", 10, 0, version=1, reasons=("graph_break",)),
        broken("helper", 6, 1, version=1, reasons=("graph_break",)),
    ]
    of.compiler_counts = CompilerCounts(t_ns=0, counts={"graph_breaks": 6}, breaks={"graph_break": 5, "print": 1})
    found = facts(of)
    assert {(b.function, b.line, b.count, b.reason) for b in found.graph_breaks} == {
        ("forward", 12, 2, "graph_break"),
        ("helper", 8, 2, "graph_break"),
        ("forward", 13, 1, "print"),
        ("", None, 1, "graph_break"),  # counted, but named of no function
    }
    assert found.graph_break_count == sum(b.count for b in found.graph_breaks)


def test_counters_are_taken_as_dynamo_gives_them() -> None:
    of = journal(50)
    counts = {
        "frames": 7,
        "graphs": 5,
        "limit_hits": 1,
        "fx_cache_hits": 2,
        "aot_cache_misses": 3,
        "cudagraph_skips": 4,
    }
    of.compiler_counts = CompilerCounts(t_ns=0, counts=counts, lost=1)
    found = facts(of)
    assert (found.frames, found.graphs, found.limit_hits, found.cudagraph_skips) == (7, 5, 1, 4)
    assert (found.cache_hits, found.cache_misses, found.lost) == (2, 3, True)
    assert found.inductor_s is None
