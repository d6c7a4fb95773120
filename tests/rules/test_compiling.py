"""The advice to compile is a line that works in the run's torch."""

import pytest
from example_runs import example_run
from findings_builder import fired
from metrics_builder import replace

from lightning_gpuprof.model.share import Share
from lightning_gpuprof.rules.discovery import discover

LOGS = Share(median_ratio=0.01, lower_ratio=0.01, median_ms=0.1, total_ratio=0.01)
RULES = {rule.id: rule for rule in discover(entry_points=()).rules}


@pytest.mark.parametrize(
    ("torch", "logs", "inside"),
    [("2.13.0+cu130", True, True), ("2.13.0", False, False), ("2.12.1", True, False), (None, True, False)],
)
@pytest.mark.parametrize("name", ["compile-absent", "launch-bound", "python-overhead", "memory-bound-kernels"])
def test_a_model_that_logs_is_not_compiled_as_a_whole_where_that_fails(
    name: str, torch: str | None, logs: bool, inside: bool
) -> None:
    rule = RULES[name]
    example = next(one for one in type(rule).examples if (one.changes.get("run") or {}).get("compile.state") == "none")
    metrics = example_run(**example.changes)
    run = {**metrics.run, "version.torch": torch}
    finding = fired(rule, replace(metrics, run=run, log_calls=LOGS if logs else None))
    line = f"{'self.net' if inside else 'model'} = torch.compile({'self.net' if inside else 'model'}"
    assert line in finding.advice
    assert finding.change.add[0].startswith(line)
    assert ("in torch 2.13 a compiled training_step that calls self.log fails" in finding.advice) is inside
