"""What the calls of metrics take of a step."""

from collections import defaultdict
from collections.abc import Sequence

from lightning_gpuprof.model.host_time import MetricCalls
from lightning_gpuprof.model.metrics import Metrics
from lightning_gpuprof.model.missing import MissingSignal, NotApplicable, or_unmeasured
from lightning_gpuprof.model.window import WindowFacts


@or_unmeasured
def metric_calls(metrics: Metrics) -> MetricCalls:
    """Time of the calls of torchmetrics' modules that update twice: of each the least share of a window's steps.

    Raises:
        NotApplicable: The model holds none. Others update once and compute, which is hard to do in less.
        MissingSignal: No window of ordinary steps names the model's modules.
    """
    known = set(str(metrics.condition("model.metrics_updated_twice") or "").split(", ")) - {""}
    if not known:
        raise NotApplicable("the model has no metric that updates twice")
    windows = [window for window in metrics.windows if _has_modules(window)]
    if not windows:
        raise MissingSignal("no trace window of ordinary steps has the model's modules")
    model = str(metrics.condition("model.class"))
    in_windows = [_shares(window, model, known) for window in windows]
    least = {name: min(found.get(name, 0.0) for found in in_windows) for name in in_windows[0]}
    names = tuple(sorted((name for name in least if least[name] > 0), key=lambda name: -least[name]))
    return MetricCalls(names=names, ratio=sum(least.values()))


def _has_modules(window: WindowFacts) -> bool:
    found = window.analysis.attribution if window.analysis is not None else None
    return found is not None and bool(found.modules) and sum(window.steps_us) > 0 and not window.is_on_slow_step


def _shares(window: WindowFacts, model: str, known: set[str]) -> dict[str, float]:
    """Share of the steps by metric; a metric within another one, as in a wrapper, counts as a part of that."""
    assert window.analysis is not None
    assert window.analysis.attribution is not None
    found: dict[str, float] = defaultdict(float)
    for row in window.analysis.attribution.modules:
        path = row.path[row.path[0] == model :]  # the model itself has no name; it may be called, or its parts alone
        named = [_metric(path[: end + 1], known) for end in range(len(path))]
        if named and named[-1] and not any(named[:-1]):
            found[named[-1]] += row.host_us / sum(window.steps_us)
    return found


def _metric(path: Sequence[str], known: set[str]) -> str:
    """The metric that a path of calls ends in, whoever called it; empty: it ends in another module."""
    return next((name for begin in range(len(path)) if (name := ".".join(path[begin:])) in known), "")
