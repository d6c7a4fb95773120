"""Figures drawn as SVG: what is written at a place is the value of that place."""

import re

import pytest

from lightning_gpuprof.sinks.drawings import spread_svg
from lightning_gpuprof.sinks.figures import PhaseSpread, SpreadFigure


@pytest.mark.parametrize("most", [0.4, 7.0, 94.9, 100.0, 1234.0])
def test_each_tick_of_the_spread_stands_at_its_own_value(most: float) -> None:
    row = PhaseSpread(phase="forward", words="forward", p05=most / 2, median=most / 2, p95=most)
    drawn = spread_svg(SpreadFigure(rows=[row]))
    (bar,) = re.findall(r'<rect x="([\d.]+)" y="\d+" width="([\d.]+)"', drawn)
    left, width = (float(value) for value in bar)
    ticks = re.findall(r'<text x="([\d.]+)%" y="\d+" text-anchor="\w+"(?: class="wide")?>([\d.,]+)', drawn)
    assert len(ticks) >= 2
    for x, label in ticks:
        assert left + (float(label.replace(",", "")) / most - 0.5) * 2 * width == pytest.approx(10 * float(x), abs=1.0)
