"""A share printed beside two times is what these divide to, whatever the mixture of steps."""

import io
import re
from collections.abc import Iterator

import numpy as np
from built_journals import MS, build, ints, journal
from hypothesis import given, settings
from hypothesis import strategies as st

from lightning_gpuprof.model.metrics import Metrics
from lightning_gpuprof.pipeline import report_of
from lightning_gpuprof.rules.engine import diagnose
from lightning_gpuprof.sinks import terminal

_PERCENT = r"(?P<percent>[\d.]+) %"
_TIMES = r"(?P<part>[\d.,]+) (?P<part_unit>ms|s) of (?:a step of |its |each )?(?P<whole>[\d.,]+) (?P<whole_unit>ms|s)"
SHOWN = (
    re.compile(_PERCENT + r"(?: \(at least [\d.]+ %\))? of the step[^.;%]*?" + _TIMES),
    re.compile(_TIMES + r"[^.;%(]* \(" + _PERCENT + r"\)"),
    re.compile(_TIMES + r" step: " + _PERCENT),
)
_UNITS_MS = {"ms": 1.0, "s": 1e3}


def shown_shares(text: str) -> Iterator[tuple[float, float]]:
    """Of each share in a text that stands beside its times: in percent as shown, and as the times divide."""
    for form in SHOWN:
        for found in form.finditer(text):
            part, whole = (
                float(found[name].replace(",", "")) * _UNITS_MS[found[f"{name}_unit"]] for name in ("part", "whole")
            )
            yield float(found["percent"]), 100 * part / whole


def texts(metrics: Metrics) -> Iterator[str]:
    diagnosis = diagnose(metrics)
    yield diagnosis.verdict.summary
    yield from (finding.summary for finding in diagnosis.findings)


def mixture(seed: int, kinds: tuple[tuple[float, float, float], ...]) -> Metrics:
    """Steps of some kinds in any order: fetch, forward and callback, ms."""
    made = journal(400)
    chosen = np.random.default_rng(seed).integers(0, len(kinds), 400)
    for slot, place in ((1, 0), (2, 1), (3, 2)):
        made.steps.charged[slot][:] = ints(np.array([kind[place] for kind in kinds]) * MS)[chosen]
    made.steps.period_ns[:] = sum(made.steps.charged.values())
    made.steps.start_ns[:] = made.steps.start_ns[0] + np.r_[0, np.cumsum(made.steps.period_ns)[:-1]]
    made.footer.end_ns = int(made.steps.start_ns[-1] + made.steps.period_ns[-1])
    return build(made)


TIMES = st.floats(0.05, 60.0)


@given(st.integers(0, 99), st.lists(st.tuples(TIMES, TIMES, TIMES), min_size=1, max_size=4).map(tuple))
@settings(max_examples=12, deadline=None)
def test_a_share_beside_its_times_is_what_they_divide_to(
    seed: int, kinds: tuple[tuple[float, float, float], ...]
) -> None:
    for text in texts(mixture(seed, kinds)):
        for shown, divided in shown_shares(text):
            assert abs(shown - divided) <= 0.5 + 0.02 * divided, text


def test_short_steps_that_wait_and_long_ones_that_do_not() -> None:
    metrics = mixture(0, ((1.45, 0.7, 0.1), (6.0, 2.9, 0.1), (0.1, 8.5, 0.1)))
    shares = [share for text in texts(metrics) for share in shown_shares(text)]
    assert shares
    for shown, divided in shares:
        assert abs(shown - divided) <= 1


def printed(metrics: Metrics) -> str:
    stream = io.StringIO()
    terminal.print_report(report_of(metrics), stream)
    return re.sub(r"\n +(?=of the step)", " ", stream.getvalue())  # a sentence that was folded there


def test_the_terminal_shows_one_share_of_the_step_for_the_wait() -> None:
    """A third of the steps is long and waits little, so that the share of the total and of the wall time are others."""
    metrics = mixture(1, ((6.0, 3.0, 1.0), (6.0, 3.0, 1.0), (2.0, 20.0, 1.0)))
    wait = next(row for row in metrics.phases if row.phase == "data_wait")
    assert wait.share < 0.4
    text = printed(metrics)
    of_step = [
        re.findall(r"([\d.]+) % of the step", line)
        + re.findall(r"(?:waiting for data, share of the step) ([\d.]+) %", line)
        + re.findall(r"next batch takes .* step \(([\d.]+) %\)", line)
        + re.findall(r"for the next batch \(([\d.]+) %\)", line)
        + re.findall(r"^ *waiting for data  .* ([\d.]+) %$", line)
        for line in text.splitlines()
        if re.search(r"waiting for data|next batch", line)
    ]
    shown = [float(value) for values in of_step for value in values]
    assert len(shown) >= 5, text
    assert all(abs(value - 60) < 0.5 for value in shown), shown


def test_each_other_share_on_the_terminal_is_named() -> None:
    text = printed(mixture(1, ((6.0, 3.0, 1.0), (6.0, 3.0, 1.0), (2.0, 20.0, 1.0))))
    heads = [line.split("  ")[-1].strip() for line in text.splitlines() if re.match(r" +(what|phase) ", line)]
    assert heads[:2] == ["of wall", "of step"]


def test_without_a_steady_step_the_phases_have_their_share_of_all_steps() -> None:
    text = printed(build(journal(2)))
    head = next(line for line in text.splitlines() if re.match(r" +phase ", line))
    assert head.endswith("of step time")
    assert re.search(r"\n *waiting for data .* 40.0 %\n", text)
