from __future__ import annotations

import pytest
from compile_builder import compiled, graph_break
from findings_builder import fired

from lightning_gpuprof.rules.steps.graph_breaks import GraphBreaks

RULE = GraphBreaks()


def test_breaks_are_told_with_their_lines_and_without_a_gain() -> None:
    breaks = [graph_break("Unsupported Tensor.item() call", count=2), graph_break("print", line=40)]
    finding = fired(RULE, compiled(breaks=breaks))
    assert finding.severity == "info"
    assert finding.gain is None
    assert finding.subject == "net.py:31 forward"
    assert "in forward (net.py:31) and forward (net.py:40): 3 graph breaks" in finding.summary


@pytest.mark.parametrize(
    ("reason", "remedy"),
    [
        ("Unsupported Tensor.item() call", "Keep the value a tensor (no .item())"),
        ("Data-dependent branching", "Replace the branch on a tensor's value by torch.where"),
        ("Call to `torch._dynamo.graph_break()`", "Remove the call of torch._dynamo.graph_break()"),
        ("Skip calling `torch.compiler.disable()`d function", "Call what is marked torch.compiler.disable before"),
        ("something new", "Move what breaks it out of the compiled code in forward (net.py:31)"),
    ],
)
def test_the_reason_decides_what_to_do(reason: str, remedy: str) -> None:
    finding = fired(RULE, compiled(breaks=[graph_break(reason)]))
    assert finding.advice.startswith(remedy)
    assert "fullgraph=True" in finding.advice


def test_a_break_without_a_line_is_told_all_the_same() -> None:
    assert fired(RULE, compiled(breaks=[graph_break("print", line=None, file="")])).subject == "torch.compile"


def test_functions_that_could_not_be_compiled_at_all_are_told() -> None:
    failures = ("Unsupported: Call to `torch._dynamo.graph_break()`",)
    finding = fired(RULE, compiled(failures=failures, run={"compile.modules": "encoder"}))
    assert finding.subject == "encoder"
    assert "1 function of encoder could not be compiled" in finding.summary
