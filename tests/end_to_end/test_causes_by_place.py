"""Slow code of the user's own beside the model, in one real fit: each place is named by itself."""

import time
from collections.abc import Iterator

import pytest
from planted_runs import Planted, Sleepy, fit, quiet_profiler
from torch.utils.data import DataLoader, Sampler

from lightning_gpuprof.model.finding import Finding

pytestmark = pytest.mark.filterwarnings("ignore")

STEPS = 60


class Late(Sampler[int]):
    """Takes a known time for each sample."""

    def __len__(self) -> int:
        return STEPS * 4

    def __iter__(self) -> Iterator[int]:
        for index in range(STEPS * 4):
            time.sleep(1.5e-3)
            yield index


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Finding]:
    model = Planted({"on_after_batch_transfer": 6e-3})
    loader = DataLoader(Sleepy(STEPS * 4), batch_size=4, sampler=Late())
    report = fit(tmp_path_factory.mktemp("fit"), model, loader, profiler=quiet_profiler(host=True))
    return {finding.rule: finding for finding in report.findings}


def measured_ms(finding: Finding, name: str) -> float:
    value = next(one.value for one in finding.evidence if one.name == name)
    assert isinstance(value, float)
    return value


def test_the_sampler_is_named_and_not_the_workers(found: dict[str, Finding]) -> None:
    line = Late.__iter__.__code__.co_firstlineno
    finding = found["sampler-slow"]
    assert finding.subject.startswith("Late (")
    assert f"test_causes_by_place.py:{line}" in finding.subject
    assert measured_ms(finding, "sampler per batch, median") >= 6.0
    assert "single-process-loading" not in found


def test_the_hook_that_moves_the_batch_is_named(found: dict[str, Finding]) -> None:
    finding = found["transfer-hook-slow"]
    assert finding.subject == "Planted.on_after_batch_transfer"
    assert measured_ms(finding, "on_after_batch_transfer per step") >= 6.0
