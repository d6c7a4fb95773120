"""The tab's routes inside of TensorBoard's own application: what they answer, refuse and never read."""

import json
import os
import re
import sys
import threading
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any
from urllib.parse import quote

import log_directories
import msgspec
import pytest
import sample_report
from log_directories import BASE, Tab
from parsed_page import Page
from saved_runs import save_run

from lightning_gpuprof.sinks import json_report, plain
from lightning_gpuprof.sinks.views.catalogue import GROUPS, VIEWS
from lightning_gpuprof.tensorboard_plugin.plugin import MAX_NAME, log_directory
from lightning_gpuprof.tensorboard_plugin.run_files import RunFiles
from lightning_gpuprof.tensorboard_plugin.summaries import Summaries, Summary
from lightning_gpuprof.tensorboard_plugin.views import TAB_VIEWS, empty_groups

SECRET = "the content of a file outside"


@pytest.fixture(scope="module")
def logdir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two runs, one hostile run, a link to a run outside, and a run with a file that leads outside."""
    root = tmp_path_factory.mktemp("tab")
    outside = save_run(root / "outside")
    (outside / "rank0.jsonl").write_text(SECRET)
    inside = root / "logs"
    save_run(inside / "a" / "gpuprof", period_ms=20.0)
    save_run(inside / "b" / "gpuprof", period_ms=10.0)
    hostile = inside / sample_report.HOSTILE.replace("/", "") / ("n" * 200)
    hostile.mkdir(parents=True)
    json_report.write(sample_report.hostile_report(), hostile / "report.json")
    (inside / "linked").symlink_to(outside, target_is_directory=True)
    leading_out = save_run(inside / "leading-out")
    (leading_out / "rank0.jsonl").symlink_to(outside / "rank0.jsonl")
    (inside / "other-tool").mkdir()
    (inside / "other-tool" / "report.json").write_text('{"coverage": 1}')
    return inside


@pytest.fixture(scope="module")
def tab(logdir: Path) -> Tab:
    return Tab(logdir)


def names(tab: Tab) -> list[str]:
    return [row["name"] for row in tab.get("runs").json["rows"]]


USUAL = "div h2 h3 section table thead tbody tr th td bdi p ul ol li strong b abbr details summary span small"
"""Elements that views may have, whether the harmless run's view happens to have them or not."""


def test_tensorboard_finds_the_plugin_by_its_entry_point() -> None:
    (found,) = (e for e in entry_points(group="tensorboard_plugins") if e.name == "gpuprof")
    assert found.value == "lightning_gpuprof.tensorboard_plugin.loader:GpuProfLoader"
    plugin = found.load()().load(type("Context", (), {"logdir": "/nowhere"})())
    assert plugin.plugin_name == "gpuprof"
    assert plugin.frontend_metadata().tab_name == "GPU Profiler"


def test_starting_tensorboard_imports_neither_the_analysis_nor_plotly() -> None:
    import subprocess

    code = (
        "import sys; from lightning_gpuprof.tensorboard_plugin.loader import GpuProfLoader\n"
        "GpuProfLoader().load(type('C', (), {'logdir': '/nowhere'})()).get_plugin_apps()\n"
        "print([m for m in ('torch', 'lightning', 'plotly', 'lightning_gpuprof.run_folder') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=True)
    assert done.stdout.strip() == "[]"


def test_the_list_has_each_run_with_its_verdict_and_numbers(tab: Tab) -> None:
    answer = tab.get("runs").json
    rows = {row["name"]: [cell["text"] for cell in row["cells"]] for row in answer["rows"]}
    assert {"a/gpuprof", "b/gpuprof"} <= set(rows)
    named = dict(zip((column["title"] for column in answer["columns"]), rows["a/gpuprof"], strict=True))
    shown = {"state": "finished", "verdict": "input-bound", "mean samples/s": "3,200", "mean step": "20.4 ms"}
    assert shown.items() <= named.items()
    assert named["top finding"]
    assert named["gain"].startswith(("up to ", "about "))
    assert [view["title"] for view in answer["views"]] == ["Overview", *GROUPS]
    assert [one for view in answer["views"] for one in view["views"]] == [
        view.anchor for group in GROUPS for view in VIEWS if view.group == group
    ]


def test_groups_of_which_nothing_was_measured_are_named(tab: Tab) -> None:
    assert tab.get("view", run="a/gpuprof", view="overview").json["empty"] == ["group-input"]
    bare = sample_report.minimal_report()
    assert empty_groups(bare) == ["group-input", "group-gpu-and-memory", "group-cpu-and-host", "group-trace"]
    for anchor in empty_groups(bare):
        assert "<table" not in TAB_VIEWS[anchor].render(bare)


def test_conditions_and_words_are_open_in_the_tab(tab: Tab) -> None:
    html = tab.get("view", run="a/gpuprof", view="group-about-this-run").json["html"]
    assert html.count("<details open>") == 2


def test_links_out_of_the_log_directory_and_reports_of_other_tools_are_no_runs(tab: Tab) -> None:
    assert not [name for name in names(tab) if name.startswith(("linked", "other-tool"))]


def test_a_run_with_a_file_that_leads_outside_is_refused_and_says_so(tab: Tab) -> None:
    row = next(row for row in tab.get("runs").json["rows"] if row["name"] == "leading-out")
    assert "cannot be read" in row["state"]
    response = tab.get("view", run="leading-out", view="overview")
    assert response.status_code == 422
    assert "leads out of the log directory" in response.json["error"]
    assert SECRET not in response.text


@pytest.mark.parametrize("view", ["overview", *(view.anchor for view in VIEWS[1:])])
def test_each_view_of_the_page_is_a_view_of_the_tab(tab: Tab, view: str) -> None:
    response = tab.get("view", run="a/gpuprof", view=view)
    assert response.status_code == 200
    assert "<h2>" in response.json["html"]
    assert response.json["states"] == ["finished"]
    assert response.json["goes_on"] is False


def test_the_overview_is_the_first_screen(tab: Tab) -> None:
    html = tab.get("view", run="a/gpuprof", view="overview").json["html"]
    places = [html.index(word) for word in ("<h1>", ">now<", "What to do", "All opportunities", "checks")]
    assert places == sorted(places)


def test_an_answer_comes_once_until_the_run_changes(logdir: Path) -> None:
    tab = Tab(logdir)
    first = tab.get("view", run="b/gpuprof", view="phases")
    version = first.headers["ETag"]
    again = tab.get("view", {"If-None-Match": version}, run="b/gpuprof", view="phases")
    assert (again.status_code, again.data) == (304, b"")
    other = tab.get("view", {"If-None-Match": version}, run="b/gpuprof", view="steps")
    assert other.status_code == 200
    listed = tab.get("runs")
    assert tab.get("runs", {"If-None-Match": listed.headers["ETag"]}).status_code == 304


REFUSED: dict[str, tuple[dict[str, Any], int]] = {
    "no run": ({"view": "overview"}, 400),
    "no view": ({"run": "a/gpuprof"}, 400),
    "an empty run": ({"run": "", "view": "overview"}, 400),
    "a view that is none": ({"run": "a/gpuprof", "view": "<script>"}, 404),
    "the verdict, which is in the overview": ({"run": "a/gpuprof", "view": "verdict"}, 404),
    "a run that is none": ({"run": "c", "view": "overview"}, 404),
    "the folder above": ({"run": "../outside", "view": "overview"}, 404),
    "a way through": ({"run": "a/gpuprof/../../../outside", "view": "overview"}, 404),
    "a link": ({"run": "linked", "view": "overview"}, 404),
    "an absolute path": ({"run": "/etc", "view": "overview"}, 404),
    "a backslash": ({"run": "..\\outside", "view": "overview"}, 404),
    "a zero byte": ({"run": "a/gpuprof\x00", "view": "overview"}, 404),
    "an encoded way": ({"run": "%2e%2e/outside", "view": "overview"}, 404),
    "a huge name": ({"run": "n" * (MAX_NAME + 1), "view": "overview"}, 400),
    "a name as long as may be": ({"run": "n" * MAX_NAME, "view": "overview"}, 404),
    "two runs": ({"run": ["a/gpuprof", "b/gpuprof"], "view": "overview"}, 400),
}


@pytest.mark.parametrize("what", REFUSED)
@pytest.mark.parametrize("route", ["view", "compare"])
def test_nonsense_is_refused_with_a_reason(tab: Tab, route: str, what: str) -> None:
    parameters, status = REFUSED[what]
    extra = {"other": "b/gpuprof"} if route == "compare" else {}
    response = tab.get(route, **parameters, **extra)
    assert response.status_code == status
    assert set(response.json) == {"error"}
    assert len(response.text) < 500


def test_a_comparison_needs_two_runs(tab: Tab) -> None:
    assert tab.get("compare", run="a/gpuprof", view="overview").status_code == 400
    assert tab.get("compare", run="a/gpuprof", other="c", view="overview").status_code == 404


@pytest.mark.parametrize(
    "path",
    [
        "/../index.js",
        "/%2e%2e/%2e%2e/etc/passwd",
        "/static/index.js",
        "/plugin.py",
        "/index.js/../plugin.py",
        "/view/../../etc/passwd",
        "//etc/passwd",
    ],
)
def test_no_route_takes_a_path(tab: Tab, path: str) -> None:
    response = tab.raw("GET", BASE + path)
    assert response.status_code == 404
    assert "root:" not in response.text


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "PATCH", "OPTIONS"])
def test_only_get_is_answered(tab: Tab, method: str) -> None:
    for route in ("runs", "view", "index.js"):
        assert tab.raw(method, f"{BASE}/{route}").status_code == 405


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("index.js", "text/javascript"),
        ("view.js", "text/javascript"),
        ("figures.js", "text/javascript"),
        ("plotly.js", "text/javascript"),
        ("tab.css", "text/css"),
        ("report.css", "text/css"),
    ],
)
def test_files_come_from_installed_packages_and_are_not_sent_twice(tab: Tab, name: str, kind: str) -> None:
    response = tab.get(name)
    assert response.status_code == 200
    assert response.content_type.startswith(kind)
    assert response.headers["X-Content-Type-Options"] == "nosniff"
    again = tab.get(name, {"If-None-Match": response.headers["ETag"]})
    assert (again.status_code, again.data) == (304, b"")
    packed = tab.get(name, {"Accept-Encoding": "gzip"})
    assert packed.headers["Content-Encoding"] == "gzip"
    assert len(packed.data) < len(response.data)


def test_our_scripts_name_no_other_host(tab: Tab) -> None:
    for route in (r for r in tab.plugin.get_plugin_apps() if r.endswith((".js", ".css")) and "plotly" not in r):
        text = tab.get(route[1:]).text
        assert not [word for word in ("http://", "https://", "ws://", "//cdn", "eval(") if word in text], route


def test_data_is_never_kept_sniffed_or_run(tab: Tab) -> None:
    for response in (
        tab.get("runs"),
        tab.get("view", run="a/gpuprof", view="steps"),
        tab.get("view", run="c", view="x"),
    ):
        assert response.content_type == "application/json"
        assert response.headers["Cache-Control"] == "no-store"
        assert response.headers["X-Content-Type-Options"] == "nosniff"
        assert "default-src 'none'" in response.headers["Content-Security-Policy"]


def test_hostile_names_add_no_element_and_no_attribute_to_any_view(tab: Tab) -> None:
    (hostile,) = (name for name in names(tab) if "script" in name)
    for anchor in TAB_VIEWS:
        html = tab.get("view", run=hostile, view=anchor).json["html"]
        beside = tab.get("compare", run="a/gpuprof", other=hostile, view=anchor).json["html"]
        harmless = tab.get("view", run="a/gpuprof", view=anchor).json["html"]
        usual = {*Page(harmless).tags, *USUAL.split()}
        for found in (Page(html), Page(beside)):
            assert not [name for _, name, _ in found.attributes if name.startswith("on")]
            assert set(found.tags) <= usual, anchor
        assert not set("\x1b\x07\u202e\u2028") & set(html + beside), anchor
        assert "n" * 1000 not in html


def test_a_hostile_name_is_shown_as_the_text_that_it_is(tab: Tab) -> None:
    (row,) = (row for row in tab.get("runs").json["rows"] if "script" in row["name"])
    assert plain.visible(row["shown"]) == row["shown"]
    assert len(row["shown"]) <= 220
    beside = tab.get("compare", run=row["name"], other="a/gpuprof", view="overview").json["html"]
    assert "<script>alert" not in beside
    assert "alert(1)" in Page(beside).text


def test_the_command_that_proves_a_fix_names_runs_as_the_log_directory_was_given(
    logdir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(logdir.parent)
    overview = Tab("logs").get("view", run="a/gpuprof", view="overview").json["html"]
    assert "gpuprof compare logs/a <folder of the new run>" in Page(overview).text


def test_a_name_that_is_no_text_is_listed_and_opens(tmp_path: Path) -> None:
    try:
        folder = Path(os.fsdecode(os.fsencode(tmp_path) + b"/run\xff"))
        folder.mkdir()
    except OSError:
        pytest.skip("this file system takes only text as names")
    json_report.write(sample_report.minimal_report(), folder / "report.json")
    tab = Tab(tmp_path)
    (name,) = names(tab)
    assert name == "run\\xff"
    assert tab.get("view", run=name, view="overview").status_code == 200


def test_side_by_side_has_both_runs_and_the_change_in_percent(tab: Tab) -> None:
    answer = tab.get("compare", run="a/gpuprof", other="b/gpuprof", view="overview").json
    text = Page(answer["html"]).text
    assert answer["states"] == ["finished", "finished"]
    for words in ("a → b", "Improved", "2x faster", "-50.0 %"):
        assert words in text
    assert answer["html"].count('id="verdict"') == 1
    findings = Page(tab.get("compare", run="a/gpuprof", other="b/gpuprof", view="findings").json["html"]).text
    assert "kept" in findings
    assert findings.count("single-process-loading") == 3


@pytest.mark.parametrize(
    ("content", "status"),
    [
        (b"", 422),
        (b"{}", 422),
        (b"\x80\x04\x95cos\nsystem", 422),
        (b'{\n "schema_version": 999}', 422),
        (b'{\n "schema_version": ' + b"[" * 100_000, 422),
    ],
)
def test_a_file_that_is_no_report_is_refused_not_run(tmp_path: Path, content: bytes, status: int) -> None:
    (tmp_path / "report.json").write_bytes(b"{}")
    (tmp_path / "rank0.jsonl").write_bytes(content)
    tab = Tab(tmp_path)
    assert tab.get("runs").status_code == 200
    response = tab.get("view", run=".", view="overview")
    assert response.status_code == status
    (tmp_path / "rank0.jsonl").unlink()
    (tmp_path / "report.json").write_bytes(content)
    assert tab.get("view", run=".", view="overview").status_code in (404, 422)


def test_a_journal_cannot_name_a_file_outside_of_its_folder(tmp_path: Path) -> None:
    lines = log_directories.journal_lines(tmp_path, 1)
    secret = tmp_path / "secret.facts.json"
    secret.write_bytes(msgspec.json.encode({"start_step": 1, "stop_step": 2, "reason": SECRET, "problem": SECRET}))
    run = tmp_path / "logs" / "run"
    run.mkdir(parents=True)
    window = {"k": "window", "start_step": 1, "stop_step": 2, "file": "../../secret.pt.trace.json.gz"}
    (run / "rank0.jsonl").write_bytes(b"".join([*lines[:-1], json.dumps(window).encode() + b"\n", lines[-1]]))
    answer = Tab(tmp_path / "logs").get("view", run="run", view="windows")
    assert answer.status_code == 200
    assert SECRET not in answer.text


@pytest.mark.parametrize("name", ["rank0.jsonl", "rank.jsonl", "rank0.1.facts.json"])
def test_a_pipe_in_place_of_a_file_holds_nothing_up(tmp_path: Path, name: str) -> None:
    run = save_run(tmp_path / "run")
    os.mkfifo(run / name)
    response = Tab(tmp_path).get("view", run="run", view="overview")
    assert response.status_code == 422
    assert "not a regular file" in response.json["error"]


def broken_report(folder: Path, table: str, **values: Any) -> None:
    """The full sample as text, with values in it that no run has."""
    content = json.loads((save_run(folder) / "report.json").read_text())
    content[table] |= values
    (folder / "report.json").write_text(json.dumps(content, indent=1))


def test_one_broken_folder_is_one_row_that_says_so_and_the_others_are_listed(tmp_path: Path) -> None:
    save_run(tmp_path / "sound")
    (tmp_path / "circle").mkdir()
    (tmp_path / "circle" / "rank0.jsonl").symlink_to("rank0.jsonl")
    first, *others = log_directories.journal_lines(tmp_path, 1)
    for field in ("epoch_ns", "start_ns"):
        (tmp_path / field).mkdir()
        head = re.sub(rb'"%s":\d+' % field.encode(), b'"%s":%s' % (field.encode(), b"9" * 400), first)
        assert head != first
        (tmp_path / field / "rank0.jsonl").write_bytes(b"".join([head, *others]))
    tab = Tab(tmp_path)
    states = {row["name"]: row["state"] for row in tab.get("runs").json["rows"]}
    assert states.pop("sound") == "finished"
    assert set(states) == {"circle", "epoch_ns", "start_ns"}
    assert all(state.startswith("cannot be read: ") for state in states.values())
    assert states["epoch_ns"] == "cannot be read: rank0.jsonl empty or damaged"
    assert tab.get("view", run="circle", view="overview").status_code == 422
    assert tab.get("view", run="epoch_ns", view="overview").status_code in (200, 422)


def test_whatever_a_run_raises_is_its_own_row(logdir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    of = Summaries.of

    def fail(self: Summaries, files: RunFiles) -> Summary:
        if files.folder == logdir / "a" / "gpuprof":
            raise ZeroDivisionError(SECRET)
        return of(self, files)

    monkeypatch.setattr(Summaries, "of", fail)
    answer = Tab(logdir).get("runs")
    states = {row["name"]: row["state"] for row in answer.json["rows"]}
    assert states["a/gpuprof"] == "cannot be read: ZeroDivisionError"
    assert states["b/gpuprof"] == "finished"
    assert SECRET not in answer.text


@pytest.mark.parametrize("values", [{"samples_per_s": -1.0}, {"count": 10**400, "steady_count": 10**400}])
def test_a_comparison_with_a_run_of_impossible_numbers_is_an_answer_too(tmp_path: Path, values: dict[str, Any]) -> None:
    save_run(tmp_path / "sound")
    broken_report(tmp_path / "broken", "steps", **values)
    response = Tab(tmp_path).get("compare", run="sound", other="broken", view="overview")
    assert response.status_code == 422
    assert "cannot be drawn" in response.json["error"]


def test_a_folder_that_becomes_a_link_is_no_longer_read(tmp_path: Path) -> None:
    run = save_run(tmp_path / "logs" / "run")
    tab = Tab(tmp_path / "logs")
    assert tab.get("view", run="run", view="overview").status_code == 200
    run.rename(tmp_path / "outside")
    run.symlink_to(tmp_path / "outside", target_is_directory=True)
    response = tab.get("view", run="run", view="findings")
    assert response.status_code in (404, 422)


def test_a_view_that_fails_is_an_answer_too(tab: Tab, monkeypatch: pytest.MonkeyPatch) -> None:
    from lightning_gpuprof.sinks.views.catalogue import View
    from lightning_gpuprof.tensorboard_plugin import views

    def fail(report: object) -> str:
        raise ZeroDivisionError(SECRET)

    monkeypatch.setitem(views.TAB_VIEWS, "broken", View("broken", "Broken", fail))
    response = tab.get("view", run="a/gpuprof", view="broken")
    assert response.status_code == 422
    assert "ZeroDivisionError" in response.json["error"]
    assert SECRET not in response.text


def test_an_empty_or_missing_log_directory_is_calm(tmp_path: Path) -> None:
    for folder in (tmp_path, tmp_path / "not-there"):
        tab = Tab(folder)
        assert not tab.plugin.is_active()
        answer = tab.get("runs")
        assert (answer.status_code, answer.json["rows"], answer.json["note"]) == (200, [], "")


@pytest.mark.parametrize(("given", "says"), [("gs://bucket/logs", "remote"), ("", "--logdir_spec")])
def test_what_is_no_local_log_directory_gives_a_calm_message(given: str, says: str) -> None:
    tab = Tab(given)
    assert not tab.plugin.is_active()
    assert says in tab.get("runs").json["note"]
    assert tab.get("view", run="a", view="overview").status_code == 404


def test_a_log_directory_that_is_a_link_is_followed(logdir: Path, tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(logdir, target_is_directory=True)
    root, _ = log_directory(type("Context", (), {"logdir": str(tmp_path / "link")})())
    assert root == logdir.resolve()
    assert "a/gpuprof" in names(Tab(tmp_path / "link"))


def test_it_is_active_as_soon_as_there_is_a_run_and_then_gets_ready(logdir: Path) -> None:
    tab = Tab(logdir)
    while not tab.plugin.is_active():
        pass
    for thread in threading.enumerate():
        if thread.name.startswith("gpuprof-tab"):
            thread.join(60)


def test_a_run_name_with_any_characters_finds_its_way_through_an_address(tmp_path: Path) -> None:
    name = "a b&c=d#e%2f+ä?"
    save_run(tmp_path / name)
    tab = Tab(tmp_path)
    assert names(tab) == [name]
    response = tab.raw("GET", f"{BASE}/view?view=overview&run={quote(name, safe='')}")
    while response.status_code == 202:
        response = tab.raw("GET", f"{BASE}/view?view=overview&run={quote(name, safe='')}")
    assert response.status_code == 200
