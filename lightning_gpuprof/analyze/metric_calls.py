"""What the calls of metrics take of a step."""

from collections import defaultdict

from lightning_gpuprof.model.host_time import MetricCalls
from lightning_gpuprof.model.metrics import Metrics
from lightning_gpuprof.model.missing import MissingSignal, NotApplicable, or_unmeasured
from lightning_gpuprof.model.window import WindowFacts


@or_unmeasured
def metric_calls(metrics: Metrics) -> MetricCalls:
    """Time of the calls of torchmetrics' modules in the windows: of each metric that of the fastest window.

    Raises:
        NotApplicable: The model holds none.
        MissingSignal: No window of ordinary steps names the model's modules.
    """
    known = set(str(metrics.condition("model.metrics") or "").split(", ")) - {""}
    if not known:
        raise NotApplicable("the model has no metric of torchmetrics")
    windows = [window for window in metrics.windows if _has_modules(window)]
    if not windows:
        raise MissingSignal("no trace window of ordinary steps has the model's modules")
    model = str(metrics.condition("model.class"))
    in_windows = [_calls_ms(window, model, known) for window in windows]
    ms = {name: min(found.get(name, 0.0) for found in in_windows) for name in in_windows[0]}
    names = tuple(sorted((name for name in ms if ms[name] > 0), key=lambda name: -ms[name]))
    twice = str(metrics.condition("model.metrics_updated_twice") or "").split(", ")
    return MetricCalls(
        names=names, ms=sum(ms.values()), twice_ms=sum(spent for name, spent in ms.items() if name in twice)
    )


def _has_modules(window: WindowFacts) -> bool:
    found = window.analysis.attribution if window.analysis is not None else None
    return found is not None and bool(found.modules) and bool(window.steps_us) and not window.is_on_slow_step


def _calls_ms(window: WindowFacts, model: str, known: set[str]) -> dict[str, float]:
    """Per step, by metric; a metric within another one, as in a wrapper, counts as a part of that."""
    assert window.analysis is not None
    assert window.analysis.attribution is not None
    found: dict[str, float] = defaultdict(float)
    for row in window.analysis.attribution.modules:
        path = row.path[row.path[0] == model :]  # the model itself has no name; it may be called, or its parts alone
        names = [".".join(path[: end + 1]) for end in range(len(path))]
        if names and names[-1] in known and known.isdisjoint(names[:-1]):
            found[names[-1]] += row.host_us / 1e3 / len(window.steps_us) / max(1.0, window.inflation_ratio or 1.0)
    return found
