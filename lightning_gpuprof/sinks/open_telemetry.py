"""A report's numbers as OpenTelemetry metrics, through its own SDK (optional)."""

from __future__ import annotations

import logging
import os
from typing import Any

from lightning_gpuprof.errors import ReportError
from lightning_gpuprof.model.report import Report
from lightning_gpuprof.sinks.gauges import gauges, labels_of_run

_PACKAGES = "opentelemetry-sdk opentelemetry-exporter-otlp-proto-http"


def send(report: Report) -> int:
    """Send each gauge once, to where OpenTelemetry's own variables say, such as ``OTEL_EXPORTER_OTLP_ENDPOINT``.

    Returns:
        How many values were sent.

    Raises:
        ReportError: OpenTelemetry is not installed or is switched off, or no collector took the numbers.
    """
    if os.environ.get("OTEL_SDK_DISABLED", "").strip().lower() == "true":
        raise ReportError("OTEL_SDK_DISABLED=true switches OpenTelemetry off: unset it to send the numbers")
    try:
        import requests
        from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
        from opentelemetry.sdk.metrics import MeterProvider
        from opentelemetry.sdk.metrics.export import InMemoryMetricReader, MetricExportResult
        from opentelemetry.sdk.resources import Resource
    except ImportError as error:
        raise ReportError(f"{error.name or error} is not installed: pip install {_PACKAGES}") from error

    class Session(requests.Session):
        """Keeps what became of the last request: the exporter only says that it failed."""

        became = ""

        def send(self, request: requests.PreparedRequest, **options: Any) -> requests.Response:
            try:
                response = super().send(request, **options)
            except requests.RequestException as error:
                self.became = _reason(error)
                raise
            self.became = f"{response.status_code} {response.reason}"
            return response

    session = Session()
    logging.getLogger("opentelemetry").setLevel(logging.CRITICAL)  # it says each try again; the error says the result
    reader = InMemoryMetricReader()
    # names of OTEL_RESOURCE_ATTRIBUTES and OTEL_SERVICE_NAME are kept beside ours
    resource = Resource.create(
        {"service.name": os.environ.get("OTEL_SERVICE_NAME", "gpuprof"), **labels_of_run(report)}
    )
    provider = MeterProvider([reader], resource)
    meter = provider.get_meter("lightning_gpuprof")
    count = 0
    for gauge in gauges(report):
        instrument = meter.create_gauge(gauge.name, description=gauge.text)
        for labels, value in gauge.rows:
            instrument.set(value, labels)
            count += 1
    try:
        if (found := reader.get_metrics_data()) is None:
            raise ReportError("OpenTelemetry kept none of the numbers")
        exporter = OTLPMetricExporter(session=session)
        result = exporter.export(found)
        exporter.shutdown()
    except ReportError:
        raise
    except Exception as error:  # what its transports raise is theirs, such as a broken address
        raise ReportError(f"OpenTelemetry could not send: {type(error).__name__}: {error}") from error
    finally:
        provider.shutdown()
    if result is not MetricExportResult.SUCCESS:
        hint = "Set OTEL_EXPORTER_OTLP_ENDPOINT to a collector that takes OTLP over HTTP."
        why = f" ({session.became})" if session.became else ""
        raise ReportError(f"{exporter._endpoint} did not take the numbers{why}. {hint}")
    return count


def _reason(error: BaseException) -> str:
    """``Connection refused``: what the system said, which others have wrapped."""
    said, inner = type(error).__name__, error.__cause__ or error.__context__
    while inner is not None:
        said = getattr(inner, "strerror", None) or said
        inner = inner.__cause__ or inner.__context__
    return said
