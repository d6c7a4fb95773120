"""``gpuprof report``: a folder in, terminal, page and JSON out."""

import gzip
import json
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import msgspec
import pytest
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from prometheus_client.parser import text_string_to_metric_families
from sample_journals import write_journal
from saved_runs import save_run

from lightning_gpuprof.cli.main import main
from lightning_gpuprof.model.report import StackRow
from lightning_gpuprof.sinks import json_report


def test_the_summary_is_printed_and_the_page_is_made(tmp_path: Path, printed: Callable[..., str]) -> None:
    folder = save_run(tmp_path / "run")
    shown = printed("report", folder)
    assert "Steps could be up to" in shown
    assert "report.html" in shown
    assert "<!DOCTYPE html>" in (folder / "report.html").read_text()


def test_json_is_the_report_and_leaves_the_folder_alone(tmp_path: Path, printed: Callable[..., str]) -> None:
    folder = save_run(tmp_path / "run")
    content = (folder / "report.json").read_bytes()
    shown = json.loads(printed("report", folder, "--json"))
    assert shown == json.loads(content)
    assert sorted(path.name for path in folder.iterdir()) == ["report.json"]


def test_a_file_of_a_run_names_the_run(tmp_path: Path, printed: Callable[..., str]) -> None:
    folder = save_run(tmp_path / "run")
    assert printed("report", folder / "report.json", "--json") == printed("report", folder, "--json")
    assert "Steps could be up to" in printed("report", folder / "report.json")


def test_the_page_goes_where_it_is_wanted(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder, page = save_run(tmp_path / "run"), tmp_path / "elsewhere.html"
    assert main(["report", str(folder), "--html", str(page)]) == 0
    assert page.is_file()
    assert not (folder / "report.html").exists()
    assert page.name in capsys.readouterr().out


def test_the_sampled_stacks_are_written_for_speedscope_and_as_folded_text(
    tmp_path: Path, printed: Callable[..., str], capsys: pytest.CaptureFixture[str]
) -> None:
    folder, target = save_run(tmp_path / "run"), tmp_path / "steps.speedscope.json"
    assert main(["report", str(folder), "--flame", str(target)]) != 0
    assert "has no sampled stacks" in capsys.readouterr().err
    report = json_report.read(folder / "report.json")
    stack = StackRow(phase="forward", frames=("train.py:12 training_step",), total_s=1.5)
    json_report.write(msgspec.structs.replace(report, stacks=(stack,)), folder / "report.json")
    assert printed("report", folder, "--flame", target) == ""
    assert json.loads(target.read_bytes())["profiles"][0]["weights"] == [1.5e6]
    assert printed("report", folder, "--flame", tmp_path / "steps.folded") == ""
    assert (tmp_path / "steps.folded").read_text() == "forward;train.py:12 training_step 1500000\n"
    assert sorted(path.name for path in folder.iterdir()) == ["report.json"]
    for wrong in (["--flame", "steps.svg"], ["--flame", "steps.json", "--all"]):
        assert main(["report", str(folder), *wrong]) != 0
        assert "--flame" in capsys.readouterr().err
    assert not Path("steps.json").exists()


def test_prometheus_reads_the_numbers(tmp_path: Path, printed: Callable[..., str]) -> None:
    folder, target = save_run(tmp_path / "run"), tmp_path / "gpuprof.prom"
    report = json_report.read(folder / "report.json")
    assert printed("report", folder, "--prometheus", target) == ""
    families = {family.name: family.samples for family in text_string_to_metric_families(target.read_text())}

    def read(name: str, **labels: str) -> float:
        (found,) = [one for one in families[f"gpuprof_{name}"] if labels.items() <= one.labels.items()]
        assert found.labels["run"] == report.run["run_id"]
        return found.value

    assert read("steps") == report.steps.count
    assert report.steps.period_ms is not None
    assert read("step_time_seconds", statistic="median") == pytest.approx(report.steps.period_ms.median / 1e3)
    waited_ms = next(row.median_ms for row in report.phases if row.phase == "data_wait")
    assert waited_ms is not None
    assert read("phase_seconds", phase="data_wait") == pytest.approx(waited_ms / 1e3)
    first = report.findings[0]
    assert read("finding_max_speedup_ratio", rule=first.rule) == pytest.approx(first.most_speedup)
    for gpu in report.devices:
        assert read("gpu_utilization_ratio", uuid=gpu.uuid) == gpu.median("utilization_ratio")
    assert sorted(path.name for path in folder.iterdir()) == ["report.json"]


@contextmanager
def collector(status: int = 200) -> Iterator[tuple[str, list[bytes]]]:
    """An OTLP collector: its address, and what it was sent."""
    taken: list[bytes] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            taken.append(gzip.decompress(body) if self.headers.get("Content-Encoding") == "gzip" else body)
            self.send_response(status)
            self.end_headers()

        def log_message(self, *args: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}", taken
    finally:
        server.shutdown()
        server.server_close()


def test_a_collector_of_opentelemetry_gets_the_same_numbers(
    tmp_path: Path, printed: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = save_run(tmp_path / "run")
    report = json_report.read(folder / "report.json")
    with collector() as (address, taken):
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", address)
        shown = printed("report", folder, "--otel")
    (sent,) = map(ExportMetricsServiceRequest.FromString, taken)
    (resource,) = sent.resource_metrics
    assert {one.key: one.value.string_value for one in resource.resource.attributes}["run"] == report.run["run_id"]
    metrics = {metric.name: metric.gauge.data_points for one in resource.scope_metrics for metric in one.metrics}
    assert report.steps.period_ms is not None
    medians = [
        point.as_double
        for point in metrics["gpuprof_step_time_seconds"]
        if any(one.value.string_value == "median" for one in point.attributes)
    ]
    assert medians == [pytest.approx(report.steps.period_ms.median / 1e3)]
    assert shown == f"{sum(map(len, metrics.values()))} values sent through OpenTelemetry\n"


def test_numbers_that_no_collector_takes(
    tmp_path: Path, refused: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = save_run(tmp_path / "run")
    with collector(400) as (address, _):
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", address)
        assert f"{address}/v1/metrics did not take the numbers (400 Bad Request)" in refused("report", folder, "--otel")
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_METRICS_TIMEOUT", "1")  # no second attempt
    assert f"{address}/v1/metrics did not take the numbers (Connection refused)" in refused("report", folder, "--otel")
    monkeypatch.setenv("OTEL_SDK_DISABLED", "true")
    assert "OTEL_SDK_DISABLED=true switches OpenTelemetry off: unset it" in refused("report", folder, "--otel")
    monkeypatch.delenv("OTEL_SDK_DISABLED")
    monkeypatch.setitem(sys.modules, "opentelemetry.exporter.otlp.proto.http.metric_exporter", None)
    assert "is not installed: pip install opentelemetry-sdk" in refused("report", folder, "--otel")
    assert "--otel and --json cannot be used together" in refused("report", folder, "--otel", "--json")


def test_each_rank_has_its_report_which_leaves_the_folder_alone(
    tmp_path: Path, printed: Callable[..., str], refused: Callable[..., str]
) -> None:
    write_journal(tmp_path / "rank0.jsonl", 30)
    written = (tmp_path / "rank0.jsonl").read_bytes().replace(b'"world_size":1', b'"world_size":2', 1)
    for rank in range(2):
        (tmp_path / f"rank{rank}.jsonl").write_bytes(written.replace(b'"rank":0', b'"rank":%d' % rank, 1))
    shown = printed("report", tmp_path, "--rank", "1")
    assert "rank 1 of 2" in shown
    assert "--all --rank 1" in shown
    assert json.loads(printed("report", tmp_path, "--rank", "1", "--json"))["run"]["rank"] == 1
    assert not list(tmp_path.glob("report.*"))
    assert "no journal of rank 2, only of 0 and 1" in refused("report", tmp_path, "--rank", "2")


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["report", "ftp://me:secret@127.0.0.1:1/run"], "ftp://***@127.0.0.1:1/run cannot be read (ConnectionRefused"),
        (["ranks", "memory://me:secret@bucket"], "memory://***@bucket contains no run"),
        (["export", "ftp://me:secret@host/run"], "there is no folder ftp:/***@host/run"),
    ],
)
def test_an_address_is_refused_without_its_password(words: list[str], says: str, refused: Callable[..., str]) -> None:
    said = refused(*words)
    assert says in said
    assert "secret" not in said


def test_a_page_that_cannot_be_written_is_an_error(tmp_path: Path, refused: Callable[..., str]) -> None:
    assert "cannot write" in refused("report", save_run(tmp_path / "run"), "--html", tmp_path / "no" / "page.html")


def test_a_folder_that_cannot_be_written_to_is_reported_all_the_same(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = save_run(tmp_path / "run")
    (folder / "report.html").mkdir()
    assert main(["report", str(folder)]) == 0
    captured = capsys.readouterr()
    assert "Steps could be up to" in captured.out
    assert "gpuprof: warning: cannot write" in captured.err
