"""A report's numbers for node_exporter's textfile collector, in the text format of the Prometheus client (optional)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from lightning_gpuprof.errors import ReportError
from lightning_gpuprof.model.report import Report
from lightning_gpuprof.sinks.gauges import gauges, labels_of_run

if TYPE_CHECKING:
    from prometheus_client.metrics_core import Metric


def encode(report: Report) -> bytes:
    """A report in Prometheus' text format: gauges, with times of the run in seconds.

    Returns:
        UTF-8. What was not measured has no line.

    Raises:
        ReportError: The Prometheus client is not installed.
    """
    try:
        from prometheus_client import CollectorRegistry, generate_latest
        from prometheus_client.core import GaugeMetricFamily
        from prometheus_client.registry import Collector
    except ImportError as error:
        raise ReportError("Prometheus text needs its client: pip install prometheus-client") from error
    run = labels_of_run(report)

    class _Numbers(Collector):
        def collect(self) -> Iterator[Metric]:
            for gauge in gauges(report):
                family = GaugeMetricFamily(gauge.name, gauge.text, labels=[*run, *gauge.rows[0][0]])
                for labels, value in gauge.rows:
                    family.add_metric([*run.values(), *labels.values()], value)
                yield family

    registry = CollectorRegistry()
    registry.register(_Numbers())
    return generate_latest(registry)
