from __future__ import annotations

import pytest
from device_builder import collective, distributed
from findings_builder import fired
from metrics_builder import replace

from lightning_gpuprof.rules.ranks.exposed_comm import ExposedComm

RULE = ExposedComm()


@pytest.mark.parametrize(("min_ms", "lower_ms"), [(5.5, 11.0), (0.5, 1.0)])
def test_the_transfer_is_what_is_gained_at_least(min_ms: float, lower_ms: float) -> None:
    finding = fired(RULE, distributed([collective(6.0, min_ms=min_ms)]))
    assert finding.gain.saved_lower_ms_per_step == pytest.approx(lower_ms)


def test_the_least_of_two_windows_decides() -> None:
    busy, calm = distributed([collective(6.0)]), distributed([collective(1.0)])
    assert RULE.check(replace(busy, windows=(*busy.windows, *calm.windows))) is None
