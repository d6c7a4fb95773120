"""What changes brought against what was expected of them and what a trial said: from rows to the page of the docs."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path

import advice
import msgspec
import paired
import pytest
from truths.settings import Found, Measured

import measured
from lightning_gpuprof.model.finding import Expected

EXPECTED = Expected(whole_ms=20.0, step_ms=10.0, lower_ms=9.0, upper_ms=11.0)


def tried(name: str, *, after_ms: float, outcome: str, expected: Expected | None = None) -> Measured:
    return Measured(
        name=name,
        no_gain=expected is None,
        before_ms=20.0,
        after_ms=after_ms,
        expected=expected,
        base_ms=21.0,
        tried_ms=10.0,
        lower_ms=9.0,
        upper_ms=11.0,
        outcome=outcome,
    )


def test_the_page_has_what_was_measured_once_it_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(measured, "RESULTS", tmp_path)
    assert measured.tried() == ""
    rows = [
        advice.row_of(tried("workers", after_ms=10.5, outcome="faster", expected=EXPECTED)),
        advice.row_of(tried("nothing", after_ms=20.0, outcome="no gain")),
    ]
    changes = [msgspec.to_builtins(asdict(row)) for row in rows]
    searches = [Found(name="slow items", chosen="num_workers=2", chosen_ms=10.2, best="num_workers=3", best_ms=10.0)]
    paired.write_json(
        tmp_path / "advice.json",
        "advice",
        summary=advice.summary(rows),
        changes=changes,
        searches=[asdict(one) for one in searches],
    )
    page = measured.tried()
    assert "| workers | 20.00 ms | 10.50 ms | 1.90x | 2.00x | 2.10x | faster |" in page
    assert "| slow items | `num_workers=2` | 10.20 ms | `num_workers=3` | 10.00 ms |" in page
    assert "| nothing | 20.00 ms | 20.00 ms | 1.00x | - | 2.10x | no gain |" in page
    assert "| expected, off by | 1 | 2.5 % | 2.5 % |" in page
    assert 'covers 100.0 % of these changes. Of 1 changes without effect, 100.0 % are called "no gain"' in page
