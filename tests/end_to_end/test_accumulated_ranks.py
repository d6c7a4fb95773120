"""Two ranks that accumulate gradients by hand: what it costs to reduce them in every backward is measured."""

from pathlib import Path

import msgspec
import pytest
from truths.faults_of_steps import optimized_by_hand
from truths.ranks import Ranks
from truths.running import in_own_process

from lightning_gpuprof.analyze.journal import read_journal
from lightning_gpuprof.analyze.metrics import build
from lightning_gpuprof.model.accumulation import Accumulation
from lightning_gpuprof.model.report import Report
from lightning_gpuprof.rules.ranks.accumulate_nosync import AccumulateNosync

pytestmark = pytest.mark.slow


def accumulated(folder: Path, *, blocks: bool) -> tuple[Report, Accumulation]:
    folder.mkdir()
    plant = optimized_by_hand(4, blocks=blocks)
    ranks = Ranks(kind="mlp", faults=dict.fromkeys(range(2), (plant,)), steps=80)
    report = in_own_process(lambda: ranks(folder, 1))
    found = build(read_journal(report.parent / "rank0.jsonl"), ()).accumulation
    assert isinstance(found, Accumulation)
    assert found.batches_per_step == 4
    return msgspec.json.decode(report.read_bytes(), type=Report), found


def test_blocked_backwards_do_not_wait_for_the_other_rank(tmp_path: Path) -> None:
    _, reduced = accumulated(tmp_path / "reduced", blocks=False)
    report, blocked = accumulated(tmp_path / "blocked", blocks=True)
    assert reduced.least_wait_ms is not None
    assert blocked.wait_ms is not None
    assert reduced.least_wait_ms > 3 * blocked.wait_ms
    assert AccumulateNosync.id not in {one.rule for one in (*report.findings, *report.not_evaluated)}
