"""The first screen as HTML: the answer in one view of a laptop and of a telephone."""

from collections.abc import Mapping, Sequence
from html import escape
from itertools import groupby

from lightning_gpuprof.model import numbers
from lightning_gpuprof.model.finding import NotEvaluated
from lightning_gpuprof.model.report import Report
from lightning_gpuprof.sinks import plain
from lightning_gpuprof.sinks.first_screen import NEW_RUN, CheckList, FirstScreen, Opportunity, first_screen
from lightning_gpuprof.sinks.fix import Fix
from lightning_gpuprof.sinks.html_page import bdi, colour, legend, prose
from lightning_gpuprof.sinks.step_bars import StepBar

SHOWN_OPPORTUNITIES = 3
"""The others unfold: the screen of a telephone has room for no more."""
_LETTER_RATIO, _EDGE_RATIO = 0.0092, 0.028
"""Parts of the bar that a letter in it and the room around a word take on a screen of 1,280 pixels."""
MINUS = "\u2212"
BEYOND_RATIO = 1.05
"""Of what a finding claims: where more is expected to be saved, the screen says why."""
_INTERVAL = "± is half the 95 % confidence interval of the median step time"
_DIFF = {" ": "same", "-": "minus", "+": "plus"}
_MIN_DRAWN_RATIO = 1e-4


def first(report: Report) -> str:
    """The first screen of a report."""
    return render(first_screen(report))


def render(screen: FirstScreen) -> str:
    """The first screen."""
    severity = screen.severity or ("good" if screen.reliability.kind == "ok" else "info")
    return (
        f'<section id="verdict" class="first {severity}">\n{_meta(screen)}'
        + "".join(f'<p class="ended">{prose(text)}</p>\n' for text in screen.ended)
        + f"<h1>{_headline(screen.headline)}</h1>\n"
        + (f'<p class="lead">{prose(_held(screen.sentence))}</p>\n' if screen.sentence else "")
        + _bars(screen)
        + (f'<p class="run">{prose(_held(screen.timed))}</p>\n' if screen.timed else "")
        + (_fix(screen.fix, screen.proof, screen.tried) if screen.fix is not None else "")
        + _card(f"{_opportunities(screen)}{_checks(screen.checks)}")
        + "</section>\n"
    )


def _headline(text: str) -> str:
    """The headline, which has its break between its sentences, or at the colon, where it needs one."""
    for mark in (". ", ": "):
        fault, end, rest = _held(text).partition(mark)
        if rest:
            return f"{prose(fault + end.rstrip())} <span>{prose(rest)}</span>"
    return prose(text)


def _held(text: str) -> str:
    """No percent sign stands at the start of a line."""
    return text.replace(" %", "\xa0%")


def _meta(screen: FirstScreen) -> str:
    known, sure = screen.reliability, " · ".join(bdi(one) for one in (screen.goal, *screen.meta) if one)
    said = escape(_held(known.mark + "\xa0" + known.words))
    words = f'<span class="sure {known.kind.replace(" ", "-")}" title="{_INTERVAL}">{said}</span>'
    if not known.details:
        return f'<div class="meta">{sure} · {words}</div>\n'
    items = "".join(f"<li>{bdi(one)}</li>\n" for one in known.details)
    return (
        f'<details class="meta">\n<summary>{sure} · {words}</summary>\n<ul class="caveats">\n{items}</ul>\n</details>\n'
    )


def _bars(screen: FirstScreen) -> str:
    if screen.today is None:
        return ""
    lost_ms = _lost_ms(screen)
    rows = bar_row("now", screen.today, screen.today.ms, lost_ms=lost_ms, steps=screen.bar_steps)
    if screen.after is not None and screen.saved_ms is not None:
        saved = f"{MINUS}{screen.shown(screen.saved_ms)}{' per step' if screen.scale == 'step' else ''}"
        rows += bar_row(screen.likely.label, screen.after, screen.today.ms, saved, steps=screen.bar_steps)
    lost = f"saved by the fix: {escape(screen.cause)} {screen.shown(sum(lost_ms.values()))}"
    lost = f'<li><i class="lost"></i>{lost}</li>\n' if lost_ms else ""
    meanings = ((one.key, f"{escape(one.label)} {screen.shown(one.ms)}") for one in screen.today.segments)
    colours = legend(meanings, lost, title=f"{screen.bar_name.capitalize()}:")
    group = f'<div role="group" aria-label="{escape(screen.bar_name)}">\n{rows}</div>\n'
    said = _saved_words(screen)
    return f"{group}{colours}{said}"


def _saved_words(screen: FirstScreen) -> str:
    """What the run gains, why that is not what a step gains, and what of the run no step holds."""
    run, said = "", []
    if screen.whole_run and screen.scale == "step":
        run = f"<b>The whole run: {screen.whole_run.replace('->', '→')}</b>"
        run += f" ({_held(screen.bridge)})" if screen.bridge else ""
    if screen.interval:
        what = "step" if screen.scale == "step" else "run"
        said.append(f"likely {what} time after the fix: {screen.interval}")
    if screen.claimed_ms is not None and (screen.saved_ms or 0.0) > BEYOND_RATIO * screen.claimed_ms:
        more_ms = (screen.saved_ms or 0.0) - screen.claimed_ms
        said.append(
            f"{screen.shown(screen.claimed_ms)} saved directly, {screen.shown(more_ms)} as the rest of the step "
            "then runs faster"
        )
    if screen.outside:
        said.append(screen.outside)
    more = f"<span>{' · ' if run else ''}{escape(' · '.join(said))}</span>" if said else ""
    return f'<p class="run">{run}{more}</p>\n' if run or more else ""


def _lost_ms(screen: FirstScreen) -> Mapping[str, float]:
    """What the fix saves of each segment, where it is a part of several."""
    if not screen.cause or screen.today is None or screen.after is None:
        return {}
    pairs = zip(screen.today.segments, screen.after.segments, strict=True)
    return {now.key: now.ms - then.ms for now, then in pairs if then.ms < now.ms}


def bar_row(
    name: str,
    bar: StepBar,
    whole_ms: float,
    saved: str = "",
    lost_ms: Mapping[str, float] | None = None,
    *,
    steps: int = 1,
) -> str:
    """A named bar in segments, with its time behind it.

    Args:
        name: Before it.
        bar: The bar.
        whole_ms: The time that is as wide as the screen.
        saved: What is said in the place that the bar leaves free; empty where nothing is saved.
        lost_ms: Parts of segments that are hatched.
        steps: That it stands for, where its times are those of one.

    Returns:
        HTML, in which ``data-ms`` is of one step; segments too thin to be seen are left out. ``name`` is not escaped
        where it is shown.
    """
    words = ", ".join(f"{segment.label} {duration(steps * segment.ms)}" for segment in bar.segments)
    pieces = []
    for segment in bar.segments:
        share = segment.ms / whole_ms
        if share < _MIN_DRAWN_RATIO:
            continue
        label = f"{segment.label} {duration(steps * segment.ms)}"
        shown = next((text for text in (label, segment.label) if _fits(text, share)), "")
        lost = (lost_ms or {}).get(segment.key, 0.0)
        part = f'<i class="lost" style="width:{100 * lost / segment.ms:.3f}%" data-ms="{lost:.6g}"></i>' if lost else ""
        pieces.append(
            f'<span{" class=outside" if segment.is_outside else ""} style="{colour(segment.key)};'
            f'width:{share * 100:.3f}%" data-ms="{segment.ms:.6g}" '
            f'title="{escape(label)}">{part}{f"<b>{escape(shown)}</b>" if shown else ""}</span>'
        )
    if saved:
        share = max(0.0, 1 - bar.ms / whole_ms)
        shown = saved if _fits(saved, share) else ""
        pieces.append(
            f'<span class="saved" style="width:{share * 100:.3f}%" data-ms="{whole_ms - bar.ms:.6g}" '
            f'title="{escape(saved)}"><b>{escape(shown)}</b></span>'
        )
    return (
        f'<div class="row2"><span>{name}</span><div class="stack" role="img" '
        f'aria-label="{escape(f"{name}: {duration(steps * bar.ms)}: {words}")}">{"".join(pieces)}</div>'
        f"<strong>{duration(steps * bar.ms)}</strong></div>\n"
    )


def _fits(label: str, share: float) -> bool:
    return len(label) * _LETTER_RATIO + _EDGE_RATIO < share


def duration(ms: float) -> str:
    """A duration with its unit: ``163 ms``."""
    return numbers.seconds(ms / 1e3)


def _fix(fix: Fix, proof: str, tried: str) -> str:
    diff = "".join(f'<span class="{_DIFF[mark]}">{mark} {escape(line)}</span>\n' for mark, line in fix.diff)
    where = f" in <code>{escape(fix.where)}</code>" if fix.where else f" {escape(fix.place)}" if fix.place else ""
    if diff:
        shown = _code(diff, fix.copied)
        more = " ".join(text for text in (fix.why, fix.effect) if text) or "More about this change"
        shown += f"<details>\n<summary>{prose(more)}</summary>\n<p>{prose(fix.advice)}</p>\n</details>\n"
    else:
        shown = (_code(escape(fix.code), "") if fix.code else "") + f"<p>{prose(fix.advice)}</p>\n"
    measured = f"<p><code>gpuprof try</code> on this run: <b>{escape(tried)}</b></p>\n" if tried else ""
    prove = (
        f"<h2>Re-run with the fix, then verify</h2>\n{_code(escape(proof), proof.removesuffix(NEW_RUN), 'command')}"
        if proof
        else ""
    )
    title = "Change this" if diff else "What to do"
    return f'<div class="card">\n<h2>{title}{where}</h2>\n{shown}{measured}{prove}</div>\n'


def diff_html(lines: Sequence[str]) -> str:
    """Lines of code that each begin with their sign; empty without lines."""
    marked = "".join(f'<span class="{_DIFF[line[0]]}">{escape(plain.visible(line))}</span>\n' for line in lines)
    return _code(marked, "") if marked else ""


def _code(shown: str, copied: str, kind: str = "") -> str:
    """Lines of code, and what a button copies of them; none where nothing is to be copied."""
    button = f'<button type="button" data-copy="{escape(copied)}">Copy</button>' if copied else ""
    return f'<div class="{f"code {kind}".rstrip()}"><pre>{shown.rstrip()}</pre>{button}</div>\n'


def _card(inner: str) -> str:
    return f'<div class="card">\n{inner}</div>\n' if inner else ""


def _opportunities(screen: FirstScreen) -> str:
    """All findings as a list; a single one that is the headline is not said again."""
    found = screen.opportunities
    if not found:
        return ""
    same = escape(screen.same_time)
    if screen.severity is not None and sum(one.same_as is None for one in found) == 1:
        return f'<p class="all"><a href="#finding-1">The evidence</a>{same and f" · {same}"}</p>\n'
    most = max((one.saved_ms or 0.0 for one in found), default=0.0)
    own = [(number, one) for number, one in enumerate(found, 1) if one.same_as is None]
    hints = all(one.sentence for one in found)
    rows = [_hint(number, one) if hints else _opportunity(number, one, most) for number, one in own]
    left = rows[SHOWN_OPPORTUNITIES:]
    more = ""
    if left:
        more = f'<details>\n<summary>{len(left)} more</summary>\n<ol class="all">\n{"".join(left)}</ol>\n</details>\n'
    title = "Hints (gain unknown)" if hints else "All opportunities"
    same = same and f'<p class="all">{same}</p>\n'
    return f'<h2>{title}</h2>\n<ol class="all">\n{"".join(rows[:SHOWN_OPPORTUNITIES])}</ol>\n{same}{more}'


def _opportunity(number: int, one: Opportunity, most_ms: float) -> str:
    gain = "gain unknown" if one.severity != "info" else "hint"
    bar = ""
    if one.rest_of is not None:
        gain = f"no more than the rest that {one.rest_of} leaves"
    elif one.saved_ms is not None and most_ms > 0:
        gain = f"{MINUS}{one.saved}"
        gain += f", {one.faster}" if one.faster else ""
        bar = f'<i style="width:{100 * one.saved_ms / most_ms:.3f}%" data-ms="{one.saved_ms:.6g}"></i>'
    return (
        f'<li class="{one.severity}"><a href="#finding-{number}">{prose(one.title)}</a>'
        f'<span class="saving">{bar}</span><span class="amount">{escape(gain)}</span></li>\n'
    )


def _hint(number: int, one: Opportunity) -> str:
    return f'<li class="info"><a href="#finding-{number}">{prose(one.title)}</a><p>{prose(one.sentence)}</p></li>\n'


def _checks(checks: CheckList) -> str:
    if not checks.words:
        return ""
    lists = [("passed", ", ".join(plain.name(rule) for rule in checks.passed))] if checks.passed else []
    lists += [(f"could not be run:  {why}", rules) for why, rules in _by_reason(checks.not_made)]
    lists += [(f"do not apply: {why}", rules) for why, rules in _by_reason(checks.not_applicable)]
    items = "".join(f"<dt>{bdi(word)}</dt><dd>{bdi(rules)}</dd>\n" for word, rules in lists)
    mark = "" if checks.not_made else "✓\xa0"
    said = f"<summary>{mark}{escape(checks.words)}</summary>"
    return f'<details class="checks">\n{said}\n<dl>\n{items}</dl>\n</details>\n'


def _by_reason(found: Sequence[NotEvaluated]) -> list[tuple[str, str]]:
    ordered = sorted(found, key=lambda one: one.why)
    return [
        (plain.sentence(why), ", ".join(plain.name(one.rule) for one in group))
        for why, group in groupby(ordered, key=lambda one: one.why)
    ]
