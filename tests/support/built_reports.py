"""Reports whose difference is known."""

import msgspec
import numpy as np
from empty_structs import empty

from lightning_gpuprof.analyze.comparison.uncertainty import StepTimes
from lightning_gpuprof.model.comparison import Change, Comparison
from lightning_gpuprof.model.finding import Finding, Gain, NotEvaluated, Verdict
from lightning_gpuprof.model.host import HostUse
from lightning_gpuprof.model.journal import Value
from lightning_gpuprof.model.memory import Memory
from lightning_gpuprof.model.report import Distribution, PhaseRow, Report, Steps, Validity, Wall

BATCH = 64


def run(
    period_ms: float = 20.0,
    *,
    std_ratio: float = 0.05,
    steady: int = 400,
    count: int = 420,
    samples_known: bool = True,
    wall_s: float | None = None,
    wait_ms: float = 8.0,
    findings: tuple[Finding, ...] = (),
    not_evaluated: tuple[NotEvaluated, ...] = (),
    valid: bool = True,
    conditions: dict[str, Value] | None = None,
    own_s: float | None = None,
) -> Report:
    period = Distribution(
        mean=period_ms,
        std=period_ms * std_ratio,
        median=period_ms,
        p05=period_ms * 0.9,
        p95=period_ms * 1.1,
        p99=period_ms * 1.2,
        min=period_ms * 0.8,
        max=period_ms * 2,
    )
    known = {"status": "finished", "world_size": 1, "loader.batch_size": BATCH, **(conditions or {})}
    batch = known["loader.batch_size"]
    total = wall_s if wall_s is not None else 2.0 + count * period_ms / 1e3
    rows = {"data_wait": wait_ms, "forward": period_ms - wait_ms}
    return empty(
        Report,
        run=known,
        validity=Validity(ok=valid, caveats=() if valid else ("a foreign process used the GPU",)),
        wall=Wall(total_s=total, parts={"setup": 2.0, "train": total - 2.0}),
        steps=Steps(
            count=count,
            optimizer_steps=count,
            steady_from=5,
            steady_count=steady,
            period_ms=period if steady else None,
            samples_per_s=batch / period_ms * 1e3 if samples_known and isinstance(batch, int) else None,
        ),
        phases=tuple(
            PhaseRow(phase=phase, median_ms=ms, p95_ms=ms, total_s=ms * count / 1e3, share=ms / period_ms)
            for phase, ms in rows.items()
        ),
        host=HostUse(),
        memory=Memory(),
        verdict=Verdict(kind="mixed", summary=""),
        findings=findings,
        not_evaluated=not_evaluated,
        overhead={} if own_s is None else {"hooks_s": own_s},
    )


def finding(rule: str, speedup_max: float | None = None, subject: str = "") -> Finding:
    gain = None if speedup_max is None else Gain(saved_ms_per_step=1.0, speedup_max=speedup_max)
    return Finding(
        rule=rule, severity="warning", subject=subject, summary=rule, advice="change it", evidence=(), gain=gain
    )


def report_of(times: StepTimes, **changes: object) -> Report:
    """The report that such steps have."""
    period = times.period_ms
    p05, median, p95, p99 = (float(q) for q in np.quantile(period, [0.05, 0.5, 0.95, 0.99]))
    plain = run(median, steady=len(period), count=len(period), findings=changes.pop("findings", ()))  # type: ignore[arg-type]
    known = Distribution(
        mean=float(period.mean()),
        std=float(period.std(ddof=1)),
        median=median,
        p05=p05,
        p95=p95,
        p99=p99,
        min=float(period.min()),
        max=float(period.max()),
    )
    rows = tuple(
        PhaseRow(
            phase=phase,
            median_ms=float(np.median(column)),
            p95_ms=None,
            total_s=float(column.sum()) / 1e3,
            share=float(column.sum() / period.sum()),
        )
        for phase, column in times.phases_ms.items()
    )
    of_steps = msgspec.structs.replace(plain.steps, period_ms=known, samples_per_s=64e3 / known.mean)
    return msgspec.structs.replace(plain, steps=of_steps, phases=rows, **changes)


def row(comparison: Comparison, measure: str) -> Change:
    return next(one for one in comparison.judged if one.measure == measure)
