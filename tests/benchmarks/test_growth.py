import json
from pathlib import Path

import growth
import pytest

pytestmark = pytest.mark.slow


def test_each_kind_of_work_is_measured_at_each_of_its_sizes(tmp_path: Path) -> None:
    target, arguments = tmp_path / "growth.json", ["--megabytes", "3", "5", "--rounds", "1", "--fit-steps", "540"]
    assert growth.main([*arguments, "--steps", "1000", "3000", "--callbacks", "0", "4", "--json", str(target)]) == 0
    document = json.loads(target.read_text())
    assert [one["steps"] for one in document["steps"]] == [1000, 3000]
    assert all(one["report_s"] > 0 for one in document["steps"])
    ours = [one for one in document["callbacks"] if one["mode"] == "gpuprof"]
    assert [one["other_callbacks"] for one in ours] == [0, 4]
    sizes = {round(one["megabytes"]) for one in document["traces"] if one["who"] == "gpuprof trace FILE --json"}
    if (growth.trace.TRACES / f"{growth.SOURCE}.json.gz").is_file():
        assert len(sizes) == 2
    else:
        assert not document["traces"]
