"""All views in the order of the method. Whatever is to appear on the page and in the tab stands here once."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from lightning_gpuprof.model.report import Report
from lightning_gpuprof.sinks.views import about, cards, findings, over_run, overview, signals, times, windows


@dataclass(frozen=True)
class View:
    """A part of a page.

    Attributes:
        anchor: The id of its element.
        title: How links call it.
        render: From a report to HTML, with the numbers of its figures inside; it asks for nothing else. Empty where
            the view does not apply to the run, as that of the ranks where there is one.
    """

    anchor: str
    title: str
    render: Callable[[Report], str]


def _first(report: Report) -> str:
    return overview.verdict(report) + cards.cards(report) + overview.tiles(report)


VIEWS: tuple[View, ...] = (
    View("verdict", "Verdict", _first),
    View("findings", "Findings", findings.findings),
    View("method", "Method", findings.method),
    View("wall", "Wall time", times.wall),
    View("ledger", "Every second", times.ledger),
    View("steps", "Step time", times.steps),
    View("curves", "Curves", over_run.curves),
    View("phases", "Phases", times.phases),
    View("ranks", "Ranks", over_run.ranks),
    View("compile", "Compiling", signals.compiling),
    View("input", "Input", signals.input_pipeline),
    View("callbacks", "Callbacks", times.callbacks),
    View("gpus", "GPUs", signals.gpus),
    View("host", "Host", signals.host),
    View("memory", "Memory", signals.memory),
    View("windows", "Windows", windows.windows),
    View("timeline", "Timeline", windows.timeline),
    View("operators", "Operators", windows.operators),
    View("not-evaluated", "Not evaluated", about.not_evaluated),
    View("overhead", "Cost", about.cost),
    View("conditions", "Conditions", about.conditions),
    View("terms", "Terms", about.terms),
)
