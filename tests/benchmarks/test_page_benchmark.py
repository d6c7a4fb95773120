"""The benchmark of the page: what it makes is a page of a run with figures over it."""

from pathlib import Path

import page
import pytest


def test_the_page_that_is_measured_has_steps_and_curves(tmp_path: Path) -> None:
    made = page.make(tmp_path, steps=2000, samples=500, seed=1)
    text = (tmp_path / "report.html").read_text()
    assert made.steps == 2000
    assert made.bytes == len(text.encode())
    for kind in ("steps", "curves", "spread"):
        assert f'data-figure="{kind}"' in text
    assert "GPU temperature" in text


def test_medians_are_of_each_moment_and_leave_out_what_a_browser_does_not_tell() -> None:
    rounds = [
        page.Shown(painted_s=painted, parsed_s=parsed, loaded_s=2.0, drawn_s=3.0, thread_cpu_s=1.0)
        for painted, parsed in ((None, 1.0), (0.2, 5.0), (0.4, 1.5))
    ]
    usual = page.medians(rounds)
    assert (usual.painted_s, usual.parsed_s, usual.drawn_s) == (pytest.approx(0.3), 1.5, 3.0)
