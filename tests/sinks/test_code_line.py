"""The user's own line in a finding, in the change and on the first screen."""

import msgspec
import pytest
import sample_report

from lightning_gpuprof.model.change import Change
from lightning_gpuprof.model.report import LineRow
from lightning_gpuprof.sinks.first_screen import first_screen
from lightning_gpuprof.sinks.fix import fix_of, line_of, named
from lightning_gpuprof.sinks.views import findings, first

FINDING = sample_report.full_report().findings[0]
ITEM = Change(remove=("value = tensor.item()",), add=("value = tensor.detach()",), file="net.py", line=31)


def row(place: str, looks: int = 10, code: str = "loss_value = loss.item()") -> LineRow:
    return LineRow(place=place, phase="forward", total_s=1.0, share=0.5, looks=looks, code=code)


def about(subject: str, change: Change | None = None) -> object:
    return msgspec.structs.replace(FINDING, subject=subject, change=change)


ROWS = (row("src/net.py:33 training_step"), row("src/net.py:38 training_step", 40), row("data.py:9 training_step", 90))


@pytest.mark.parametrize(
    ("subject", "place"),
    [
        ("net.py(31): training_step", "src/net.py:38"),  # of a trace: the line of the def, and less of the path
        ("src/net.py:33 training_step", "src/net.py:33"),
        ("net.py(31): forward", None),
        ("src/net.py:34 training_step", None),
        ("Watcher.on_train_batch_end", None),
    ],
)
def test_the_line_is_the_one_that_was_seen_in_the_function(subject: str, place: str | None) -> None:
    found = line_of(about(subject), ROWS)  # type: ignore[arg-type]
    assert (None if found is None else named(found)) == place


def test_a_line_whose_code_is_not_known_is_none() -> None:
    assert line_of(about("a.py:3 f"), [row("a.py:3 f", code="")]) is None  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("code", "diff"),
    [
        ("total += loss.item()", (("-", "total += loss.item()"), ("+", "total += loss.detach()"))),
        ("if loss.item() > 3:", ((" ", "if loss.item() > 3:"), ("-", ITEM.remove[0]), ("+", ITEM.add[0]))),
        ("x = f(y.item())", ((" ", "x = f(y.item())"), ("-", ITEM.remove[0]), ("+", ITEM.add[0]))),
    ],
)
def test_the_change_is_in_the_user_s_own_line_where_it_is_simple(code: str, diff: object) -> None:
    fix = fix_of(about("net.py(31): training_step", ITEM), {}, row("net.py:38 training_step", code=code))  # type: ignore[arg-type]
    assert (fix.where, fix.diff) == ("net.py:38", diff)
    assert fix.copied == ("total += loss.detach()" if code.startswith("total") else "")


def test_the_line_stands_by_itself_where_the_advice_is_words() -> None:
    finding = about("net.py:38 training_step")
    report = msgspec.structs.replace(
        sample_report.full_report(), findings=(finding,), lines=(row("net.py:38 training_step"),)
    )
    screen = first_screen(report)
    assert (screen.fix.where, screen.fix.code, screen.fix.diff) == ("net.py:38", "loss_value = loss.item()", ())
    for html in (first.render(screen), findings.findings(report)):
        assert "<pre>loss_value = loss.item()</pre>" in html
        assert "<code>net.py:38</code>" in html
