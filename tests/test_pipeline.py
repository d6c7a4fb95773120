"""The report takes its fields from the metrics and the diagnosis by name."""

from typing import get_type_hints

from lightning_gpuprof.model.metrics import Metrics
from lightning_gpuprof.model.report import Report
from lightning_gpuprof.rules.engine import Diagnosis

MADE_FOR_THE_REPORT = {"schema_version", "ranks", "method", "target", "cost", "trial"}


def test_each_field_of_a_report_has_one_source_and_its_type() -> None:
    wanted = get_type_hints(Report)
    sources = {name: set(name.__struct_fields__) & set(wanted) for name in (Metrics, Diagnosis)}
    assert not sources[Metrics] & sources[Diagnosis]
    taken = sources[Metrics] | sources[Diagnosis]
    assert taken | MADE_FOR_THE_REPORT == set(Report.__struct_fields__)
    for source, names in sources.items():
        given = get_type_hints(source)
        assert {name: given[name] for name in names - {"ranks"}} == {name: wanted[name] for name in names - {"ranks"}}
