"""The flame graph: bars as wide as their times, children within their parents, by modules where there are some."""

import re

import msgspec
import pytest
import window_samples
from empty_structs import empty

from lightning_gpuprof.model.trace.attribution import Attribution, ModuleTime
from lightning_gpuprof.sinks.window_figures.flame import WIDTH, flame_html, flame_of


def bars(html: str) -> list[tuple[float, float, float, float]]:
    """x, y, width and time of each."""
    found = re.findall(r'<rect x="([^"]+)" y="([^"]+)" width="([^"]+)"[^>]*data-us="([^"]+)"', html)
    return [(float(x), float(y), float(width), float(us)) for x, y, width, us in found]


def with_modules() -> Attribution:
    times = {("Net_0",): 900.0, ("Net_0", "Conv_1"): 600.0, ("Net_0", "Linear_2"): 200.0, ("Loss_3",): 50.0}
    rows = tuple(empty(ModuleTime, path=path, device_us=us) for path, us in times.items())
    return empty(Attribution, device_us=1000.0, modules=rows)


@pytest.mark.parametrize("modules", [True, False])
def test_bars_are_as_wide_as_their_times_and_lie_below_what_they_are_part_of(modules: bool) -> None:
    attribution = with_modules() if modules else None
    analysis = msgspec.structs.replace(window_samples.analysis(), attribution=attribution)
    flame = flame_of(analysis)
    assert flame is not None
    assert flame.what.endswith("module" if modules else "operator")
    drawn = bars(flame_html(flame_of(analysis)))
    assert len(drawn) >= 2
    for x, y, width, us in drawn:
        assert width == pytest.approx(max(WIDTH * us / flame.total_us - 1, 0.5), abs=0.11)
        above = [one for one in drawn if one[1] == y - 22 and one[0] - 0.2 <= x and x + width <= one[0] + one[2] + 0.2]
        assert y == 0 or len(above) == 1


def test_a_window_without_operators_has_no_flame_graph() -> None:
    analysis = msgspec.structs.replace(window_samples.analysis(), attribution=None, operators=None)
    assert flame_html(flame_of(analysis)) == ""
