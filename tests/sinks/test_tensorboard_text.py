"""The diagnosis as TensorBoard shows it, drawn by TensorBoard's own code."""

from pathlib import Path

import pytest
import sample_report
from parsed_page import Page
from tensorboard.plugin_util import markdown_to_safe_html

from lightning_gpuprof.sinks import plain
from lightning_gpuprof.sinks.first_screen import first_screen
from lightning_gpuprof.sinks.tensorboard_text import escape, markdown


def drawn(markdown_text: str) -> Page:
    return Page(markdown_to_safe_html(markdown_text))


def test_tables_render_with_as_many_cells_in_each_row() -> None:
    report = sample_report.full_report()
    page = drawn(markdown(report))
    # evidence of three findings, wall, ledger, phases, GPUs, windows, cost
    assert len(page.tables) == 9
    assert all(len(set(table)) == 1 for table in page.tables)
    assert len(report.phases) + 1 in [len(table) for table in page.tables]


def test_verdict_findings_and_advice_are_in_the_text() -> None:
    page = drawn(markdown(sample_report.full_report()))
    for words in ("input-bound", "single-process-loading", "Set num_workers=4", "up to 1.77x", "43.4 %"):
        assert words in page.text


def test_the_change_and_the_command_that_proves_it_come_first() -> None:
    text = drawn(markdown(sample_report.full_report(), Path("runs/digits/version_0/gpuprof"))).text
    assert text.index("median step 27.2 ms → 15.4 ms") < text.index(
        "gpuprof compare runs/digits/version_0 runs/digits/version_1"
    )
    assert text.index("runs/digits/version_1") < text.index("Verdict: input-bound")


def test_it_begins_with_the_headline_of_the_terminal() -> None:
    report = sample_report.full_report()
    screen = first_screen(report)
    page = drawn(markdown(report))
    assert page.text.strip().startswith(screen.headline)
    assert screen.meta[-1] in page.text


def test_hostile_names_stay_text() -> None:
    source = markdown(sample_report.hostile_report())
    page = drawn(source)
    assert not {"a", "img", "script", "em"} & set(page.tags)
    assert page.tags.count("code") == page.tags.count("pre")  # the change and the command, nothing else
    assert all(len(set(table)) == 1 for table in page.tables)
    assert plain.visible(sample_report.HOSTILE) in page.text
    assert not set("\x1b\x07\u202e\u2028") & set(source)


@pytest.mark.parametrize(
    "text", ["__init__", "*a*", "`x`", "a|b", "<b>", "# x", "![i](u)", "&amp;", "a\\b", "1. x", "- x", "~~x~~"]
)
def test_escaped_text_shows_exactly_its_characters(text: str) -> None:
    page = drawn(f"| a |\n| --- |\n| {escape(text)} |")
    assert page.tables == [[1, 1]]
    assert page.text.split("\n").count(text) == 1
    assert set(page.tags) == {"table", "thead", "tbody", "tr", "th", "td"}


def test_a_run_without_anything_has_a_text_too() -> None:
    page = drawn(markdown(sample_report.minimal_report()))
    assert "not-enough-data" in page.text
    assert "No step was measured." in page.text
