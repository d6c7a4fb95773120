"""The HTML page: parsed, and drawn by a real browser where there is one."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from html.parser import HTMLParser
from pathlib import Path

import msgspec
import pytest
import sample_report

from lightning_gpuprof.model.phases import PHASES
from lightning_gpuprof.sinks import html, plain
from lightning_gpuprof.sinks.html import render_html

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
MAX_BYTES = 6_000_000
TABLES = 20
"""Evidence of three findings, wall, the ledger's top and the whole of it, phases, period, regimes, labels, callbacks,
GPUs, host, memory, windows, operators, kernels, rules that could not judge, cost, conditions."""
SECTIONS = [anchor for anchor, _ in html.SECTIONS]
QUIET = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]


class Page(HTMLParser):
    """Elements, their attributes, scripts and the text that a reader sees."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str, str]] = []
        self.scripts: list[str] = []
        self.text = ""
        self._inside = ""
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += [(tag, name, value or "") for name, value in attrs]
        if tag in ("script", "style"):
            self._inside = tag
            if tag == "script":
                self.scripts.append("")

    def handle_endtag(self, tag: str) -> None:
        if tag in ("script", "style"):
            self._inside = ""

    def handle_data(self, data: str) -> None:
        if self._inside == "script":
            self.scripts[-1] += data
        elif not self._inside:
            self.text += data


@pytest.fixture(scope="module")
def full() -> str:
    return render_html(sample_report.full_report())


@pytest.fixture(scope="module")
def hostile() -> str:
    return render_html(sample_report.hostile_report())


def own_part(page: str) -> str:
    """The page without Plotly's script, which names addresses that it never asks."""
    return re.sub(r"<script>/\*\*?\n\* plotly\.js.*?</script>", "<script></script>", page, flags=re.DOTALL)


def test_the_page_is_one_file_that_refers_to_nothing_else(full: str) -> None:
    own = own_part(full)
    assert len(own) < 200_000
    assert not re.search(r"(https?|wss?|ftp)://|[\"'(]//", own)
    page = Page(full)
    assert not [a for a in page.attributes if a[1] in ("src", "srcset", "data", "action")]
    assert all(value.startswith("#") for _, name, value in page.attributes if name == "href")
    assert not {"link", "iframe", "object", "embed", "img", "base", "form"} & set(page.tags)
    assert "default-src 'none'" in full


def test_every_section_and_table_is_there_without_script(full: str) -> None:
    page = Page(full)
    ids = [value for _, name, value in page.attributes if name == "id"]
    assert [anchor for anchor in SECTIONS if anchor not in ids] == []
    assert page.tags.count("table") == TABLES
    for words in ("input-bound", "Set num_workers=4", "up to 1.77x", "43.4 %", "2.98 GiB", "fewer than 2 epochs"):
        assert words in page.text


def test_the_ledger_is_there_whole_and_ends_with_what_is_unexplained_and_the_sum(full: str) -> None:
    text = Page(full).text
    report = sample_report.full_report()
    for row in report.ledger:
        assert (f"{row.name}.{row.hook}" if row.hook else row.name) in text
    whole = text[text.index(f"All {len(report.ledger)} rows") :]
    assert whole.index("unexplained") < whole.index("sum")
    assert "100.0 %" in whole


def test_intervals_labels_and_regimes_are_on_the_page(full: str) -> None:
    text = Page(full).text
    for words in ("26.9 to 27.5", "2,310 to 2,390", "before the run was steady", "200 to 399", "380 steady"):
        assert words in text
    one = sample_report.full_report()
    one = msgspec.structs.replace(one, steps=msgspec.structs.replace(one.steps, regimes=one.steps.regimes[:1]))
    assert "Regimes" not in Page(render_html(one)).text


@pytest.mark.parametrize(
    ("stage", "title"),
    [
        ("validate", "Where the validation time went"),
        ("test", "Where the test time went"),
        ("predict", "Where the prediction time went"),
    ],
)
def test_a_page_of_another_stage_does_not_speak_of_training(stage: str, title: str) -> None:
    page = Page(render_html(sample_report.evaluation_report(stage)))
    assert title in page.text
    assert "optimizer steps" not in page.text.split("What the words mean")[0]
    assert f"of the wall time of {stage}" in " ".join(value for _, name, value in page.attributes if name == "title")


def test_every_phase_is_explained_on_hover_and_in_the_list_of_terms(full: str) -> None:
    page = Page(full)
    titles = [value for tag, name, value in page.attributes if (tag, name) == ("abbr", "title")]
    for phase in PHASES:
        assert html.PHASE_TERMS[phase] in titles
        assert f"{phase} (phase)" in page.text


def test_a_page_stays_below_six_megabytes_for_a_hundred_thousand_steps() -> None:
    assert len(render_html(sample_report.full_report(steps=100_000)).encode()) <= MAX_BYTES


def test_hostile_names_add_no_element_no_attribute_and_no_script(full: str, hostile: str) -> None:
    page, harmless = Page(hostile), Page(full)
    assert set(page.tags) <= set(harmless.tags)
    assert len(page.scripts) == len(harmless.scripts) == 3
    assert {(tag, name) for tag, name, _ in page.attributes} <= {(tag, name) for tag, name, _ in harmless.attributes}
    assert not [name for _, name, _ in page.attributes if name.startswith("on")]
    assert all(value.startswith("#") for _, name, value in page.attributes if name == "href")


def test_hostile_names_are_shown_as_the_text_that_they_are(hostile: str) -> None:
    assert plain.visible(sample_report.HOSTILE) in Page(hostile).text
    assert not set("\x1b\x07\u202e\u2028") & set(own_part(hostile))


def test_a_name_of_ten_kilobytes_is_cut(hostile: str) -> None:
    assert "n" * 1000 not in own_part(hostile)


def test_the_figures_data_is_json_that_cannot_end_its_script(hostile: str) -> None:
    data = Page(hostile).scripts[0]
    assert "<" not in data
    assert set(json.loads(data)) == {"batch", "period_ms", "phases"}


def test_json_for_a_script_escapes_what_would_end_it() -> None:
    text = html.script_json([sample_report.HOSTILE, "<!--", "]]>&amp;"])
    assert not set("<>&\u2028") & set(text)
    assert json.loads(text) == [sample_report.HOSTILE, "<!--", "]]>&amp;"]


def test_a_run_without_anything_has_a_page_without_plotly() -> None:
    text = render_html(sample_report.minimal_report())
    page = Page(text)
    assert len(text) < 100_000
    assert page.scripts == []
    assert "not-enough-data" in page.text
    assert "GPUs: not measured" in page.text


def test_writing_leaves_only_the_page(tmp_path: Path) -> None:
    html.write(sample_report.minimal_report(), tmp_path / "report.html")
    assert [path.name for path in tmp_path.iterdir()] == ["report.html"]


def browse(page: str, folder: Path, *flags: str) -> str:
    """The document as a browser has it after its scripts ran, with no name of any host resolved."""
    if CHROMIUM is None:
        pytest.skip("no Chromium on this machine")
    file = folder / "page.html"
    file.write_text(page)
    command = [
        CHROMIUM,
        *QUIET,
        f"--user-data-dir={folder / 'profile'}",
        "--host-resolver-rules=MAP * ~NOTFOUND",
        "--virtual-time-budget=10000",
        *flags,
        "--dump-dom",
        file.as_uri(),
    ]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert "<html" in done.stdout, done.stderr[-2000:]
    return done.stdout


def requests(log: Path) -> set[str]:
    """Addresses that a page asked for, from the browser's own log; what the browser asks for itself has no origin."""
    found = set()
    for line in log.read_text(errors="replace").splitlines():
        if '"initiator"' in line and '"initiator":"not an origin"' not in line:
            found |= set(re.findall(r'"url":"((?:https?|wss?|ftp)://[^"]*)"', line))
    return found


@pytest.mark.slow
def test_a_browser_draws_the_figure_and_asks_no_host(full: str, tmp_path: Path) -> None:
    log = tmp_path / "net.json"
    # Without its policy nothing keeps the page from asking: what it does not ask for now it never asks for.
    unguarded = re.sub('<meta http-equiv="Content-Security-Policy"[^>]*>', "", full)
    assert unguarded != full
    dom = browse(unguarded, tmp_path, f"--log-net-log={log}")
    body = dom[dom.index("<body") :]
    assert body.count("<table") == TABLES
    assert 'class="main-svg"' in body
    assert len(re.findall(r'class="trace scatter', body)) >= 10
    assert 'id="step-hint" hidden' in body
    assert requests(log) == set()


@pytest.mark.slow
def test_the_policy_lets_the_figure_be_drawn(full: str, tmp_path: Path) -> None:
    assert 'class="main-svg"' in browse(full, tmp_path)


@pytest.mark.slow
def test_a_request_of_a_page_would_be_seen(tmp_path: Path) -> None:
    log = tmp_path / "net.json"
    browse("<html><img src='http://gpuprof.example/x.png'></html>", tmp_path, f"--log-net-log={log}")
    assert "http://gpuprof.example/x.png" in requests(log)


@pytest.mark.slow
def test_a_hostile_page_runs_no_foreign_script_in_a_browser(hostile: str, tmp_path: Path) -> None:
    dom = browse(hostile, tmp_path)
    assert 'class="main-svg"' in dom
    page = Page(dom[dom.index("<body") :])
    assert not [script for script in page.scripts if script.startswith("alert(")]
    assert plain.visible(sample_report.HOSTILE) in page.text
