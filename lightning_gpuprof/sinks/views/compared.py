"""The answer of a comparison as HTML: both steps as bars on one scale, what was expected, what changed, what next."""

from collections.abc import Mapping, Sequence
from html import escape

from lightning_gpuprof.model.comparison import Comparison, Outcome
from lightning_gpuprof.model.phases import PHASES, words_of
from lightning_gpuprof.sinks.comparison_answer import PhaseChange, StepTimes, Target, amount, answer, run_names
from lightning_gpuprof.sinks.html_page import bdi, legend, prose
from lightning_gpuprof.sinks.step_bars import OTHER, Segment, StepBar
from lightning_gpuprof.sinks.views.first import MINUS, bar_row, diff_html

_OFF_RATIO = 0.02
"""Phases that miss the step by more are of another statistic, and the bars are not divided."""
_SEVERITY: dict[Outcome, str] = {"improved": "good", "regressed": "critical"}


def compared(comparison: Comparison) -> str:
    """The first screen of a comparison."""
    found = answer(comparison)
    runs = " → ".join(map(bdi, run_names(comparison)))
    kind = _SEVERITY.get(comparison.outcome, "info")
    bars = "" if found.times is None else _bars(found.times, found.target, found.phases)
    facts = "".join(f"<dt>{escape(label)}</dt><dd>{prose(_arrow(text))}</dd>\n" for label, text in found.facts)
    notes = f"{diff_html(found.diff)}{_notes(found.notes)}"
    return (
        f'<section id="outcome" class="first {kind}">\n<div class="meta">{runs}</div>\n'
        f'<h1><strong class="outcome">{escape(comparison.outcome.capitalize())}.</strong> {bdi(_arrow(found.verdict))}'
        f'</h1>\n{bars}<div class="card">\n<dl class="facts">\n{facts}</dl>\n{notes}</div>\n</section>\n'
    )


def _arrow(text: str) -> str:
    """No percent sign stands at the start of a line."""
    return text.replace(" -> ", " → ").replace(" %", "\xa0%")


def _bars(times: StepTimes, target: Target | None, phases: Sequence[PhaseChange]) -> str:
    whole_ms = max(times.before_ms, times.after_ms)
    change_ms = times.after_ms - times.before_ms
    before, after = _divided(times, phases)
    saved = f"{MINUS}{amount(-change_ms)} ms per step" if change_ms < 0 else ""
    rows = bar_row("before", before, whole_ms) + bar_row("after", after, whole_ms, saved)
    if target is not None:
        share = min(100.0, 100 * target.ms / whole_ms)
        side, offset = ("right", 100 - share) if share > 50 else ("left", share)
        rows += (
            f'<div class="row2 target"><span></span><div><b class="{side}" style="{side}:{offset:.3f}%" '
            f'data-ms="{target.ms:.6g}">{escape(target.words)}</b></div></div>\n'
        )
    colours = legend(
        (row.name, f"{escape(words_of(row.name))} {amount(row.before_ms)} → {amount(row.after_ms)} ms")
        for row in phases
        if len(before.segments) > 1
    )
    return f'<div role="group" aria-label="{escape(times.name)}">\n{rows}</div>\n{colours}'


def _divided(times: StepTimes, phases: Sequence[PhaseChange]) -> tuple[StepBar, StepBar]:
    before = _step_bar(times.before_ms, {row.name: row.before_ms for row in phases})
    return before, _step_bar(times.after_ms, {row.name: row.after_ms for row in phases})


def _step_bar(ms: float, phases: Mapping[str, float]) -> StepBar:
    """A step in its phases, in the order of a step; whole where they do not sum to it."""
    parts = dict(phases)
    missing_ms = ms - sum(parts.values())
    if abs(missing_ms) > _OFF_RATIO * ms:
        parts = {"train": ms}
    else:
        parts[OTHER] = max(0.0, parts.get(OTHER, 0.0) + missing_ms)
    order = [name for name in (*PHASES, "train", OTHER) if name in parts]
    return StepBar(ms=ms, segments=tuple(Segment(key=name, label=words_of(name), ms=parts[name]) for name in order))


def _notes(notes: Sequence[str]) -> str:
    if not notes:
        return ""
    first, *more = (bdi(note) for note in notes)
    if not more:
        return f'<p class="hint">{first}</p>\n'
    items = "".join(f"<li>{note}</li>\n" for note in more)
    return f"<details>\n<summary>{first} (and {len(more)} more)</summary>\n<ul>\n{items}</ul>\n</details>\n"
