"""The HTML page: parsed, and drawn by a real browser where there is one."""

import json
import re
import subprocess
from html import unescape as html_of
from pathlib import Path

import msgspec
import pytest
import sample_report
from chromium import CHROMIUM
from parsed_page import Page

from lightning_gpuprof.model.curves import Mark, Marks
from lightning_gpuprof.model.finding import NotEvaluated
from lightning_gpuprof.model.phases import PHASE_TERMS, PHASES, words_of
from lightning_gpuprof.sinks import host_tables, html, plain, tables
from lightning_gpuprof.sinks.html import render_html
from lightning_gpuprof.sinks.html_page import prose, script_json
from lightning_gpuprof.sinks.views.catalogue import VIEWS

MAX_BYTES = 400_000
TABLES = 35 + sum(bool(table.rows) for table in host_tables.tables_of(sample_report.full_report()))
"""Evidence of three findings, wall, the ledger's top and the whole of it, phases, step time, speed levels, labels,
callbacks, GPUs, their limits, errors and facts, host, eight of memory, windows, operators, kernels, rules that could
not judge, cost, conditions, what the curves reach, ranks and their colours, the phases again in the overview."""
SECTIONS = [view.anchor for view in VIEWS]
QUIET = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]


@pytest.fixture(scope="module")
def full() -> str:
    return render_html(sample_report.full_report())


@pytest.fixture(scope="module")
def hostile() -> str:
    return render_html(sample_report.hostile_report())


def test_the_page_is_one_file_that_refers_to_nothing_else(full: str) -> None:
    assert len(full) < MAX_BYTES
    assert not re.search(r"(https?|wss?|ftp)://|[\"'(]//", full)
    assert "Plotly.react" not in full
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


def test_intervals_labels_and_speed_levels_are_on_the_page(full: str) -> None:
    text = Page(full).text
    for words in ("26.9 to 27.5", "2,310 to 2,390", "before the run was steady", "200 to 399", "380 steady"):
        assert words in text
    one = sample_report.full_report()
    one = msgspec.structs.replace(
        one, steps=msgspec.structs.replace(one.steps, speed_levels=one.steps.speed_levels[:1])
    )
    assert "Speed levels" not in Page(render_html(one)).text


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
    assert "optimizer steps" not in page.text.split("Glossary")[0]
    assert f"of the wall time of {stage}" in " ".join(value for _, name, value in page.attributes if name == "title")


def test_every_phase_is_explained_on_hover_and_in_the_list_of_terms(full: str) -> None:
    page = Page(full)
    titles = [value for tag, name, value in page.attributes if (tag, name) == ("abbr", "title")]
    for phase in PHASES:
        assert f"{phase}: {PHASE_TERMS[phase]}" in titles
        assert f"{words_of(phase)} (phase)" in page.text


def test_the_words_of_a_gpu_are_in_the_glossary(full: str) -> None:
    for word in ("SM", "warp", "block", "grid", "occupancy"):
        assert f"<dt>{word}</dt>" in full


def test_a_page_stays_small_for_a_hundred_thousand_steps() -> None:
    assert len(render_html(sample_report.full_report(steps=100_000)).encode()) <= MAX_BYTES


def test_hostile_names_add_no_element_no_attribute_and_no_script(full: str, hostile: str) -> None:
    page, harmless = Page(hostile), Page(full)
    assert set(page.tags) <= set(harmless.tags)
    assert len(page.scripts) == len(harmless.scripts) == 1
    assert {(tag, name) for tag, name, _ in page.attributes} <= {(tag, name) for tag, name, _ in harmless.attributes}
    assert not [name for _, name, _ in page.attributes if name.startswith("on")]
    assert all(value.startswith("#") for _, name, value in page.attributes if name == "href")


def test_hostile_names_are_shown_as_the_text_that_they_are(hostile: str) -> None:
    assert plain.visible(sample_report.HOSTILE) in Page(hostile).text
    assert not set("\x1b\x07\u202e\u2028") & set(hostile)


def test_a_name_of_ten_kilobytes_is_cut(hostile: str) -> None:
    assert "n" * 1000 not in hostile


@pytest.mark.parametrize(
    ("sentence", "code"),
    [
        ("Move what waits in need() (train.py:42) out of forward.", ["need()", "train.py:42"]),
        ("Load them: DataLoader(..., num_workers=2). Why 2: 2 CPUs.", ["DataLoader(..., num_workers=2)"]),
        ("f(g(h(1), 2), 3) is", ["f(g(h(1), 2), 3)"]),
        ("return super().move(batch, device). Move", ["super().move(batch, device)"]),
        ("num_workers=2 is set, collate_fn is not (e.g. in b/net.py).", ["num_workers=2", "collate_fn", "b/net.py"]),
        (
            "begin Slow.on_end with `if step % 60: return`.",
            ["Slow.on_end", "if step % 60: return"],
        ),
        ('In them attn_implementation="sdpa".', ['attn_implementation="sdpa"']),
        ("In LightningModule.on_after_batch_transfer, ...", ["LightningModule.on_after_batch_transfer"]),
        ("1.5 ms of each 3.0 ms step, at 4.0 GB/s (16 %), in 12 of 20 steps.", []),
        ("Or use shuffle=True.", ["shuffle=True"]),
        ("<b>(x)", []),
    ],
)
def test_code_in_a_sentence_is_marked_as_code(sentence: str, code: list[str]) -> None:
    shown = prose(sentence)
    assert "<wbr><wbr>" not in shown
    shown = shown.replace("<wbr>", "")
    assert [html_of(one) for one in re.findall(r"<code>(.*?)</code>", shown)] == code
    assert html_of(re.sub(r"</?(code|bdi)>", "", shown)) == sentence.replace("`", "")


def test_json_for_a_script_escapes_what_would_end_it() -> None:
    text = script_json([sample_report.HOSTILE, "<!--", "]]>&amp;"])
    assert script_json(['a\\"1.0,', 83.0, [0.5, 10.0]]) == '["a\\\\\\"1.0,",83,[0.5,10]]'
    assert not set("<>&\u2028") & set(text)
    assert json.loads(text) == [sample_report.HOSTILE, "<!--", "]]>&amp;"]


def test_a_run_without_anything_has_a_small_page() -> None:
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
    assert body.count('<svg class="drawn"') >= 3
    assert "The figure needs JavaScript" not in body
    assert requests(log) == set()


@pytest.mark.slow
def test_a_request_of_a_page_would_be_seen(tmp_path: Path) -> None:
    log = tmp_path / "net.json"
    browse("<html><img src='http://gpuprof.example/x.png'></html>", tmp_path, f"--log-net-log={log}")
    assert "http://gpuprof.example/x.png" in requests(log)


@pytest.mark.slow
def test_a_hostile_page_runs_no_foreign_script_in_a_browser(hostile: str, tmp_path: Path) -> None:
    dom = browse(hostile, tmp_path)
    page = Page(dom[dom.index("<body") :])
    assert not [script for script in page.scripts if script.startswith("alert(")]
    assert plain.visible(sample_report.HOSTILE) in page.text
    assert all(value.startswith("#") for _, name, value in page.attributes if name == "href")


def test_what_happened_to_the_steps_is_told_in_words_too(full: str) -> None:
    text = Page(full).text
    for words in (
        "outlier: 7; batch 56, 113",
        "window: 1; batch 200 to 205",
        "validation: 4; batch 99",
        "speed level: 1",
    ):
        assert words in text


def test_of_many_marks_the_page_says_how_many_are_drawn() -> None:
    many = Marks(kind="epoch", count=5000, marks=tuple(Mark(from_batch=b, to_batch=b) for b in range(100)))
    text = Page(render_html(msgspec.structs.replace(sample_report.full_report(), marks=(many,)))).text
    assert "epoch: 5,000, 100 drawn; batch 0, 1, 2" in text


def test_one_rank_has_no_table_of_ranks() -> None:
    alone = render_html(msgspec.structs.replace(sample_report.full_report(), ranks=None))
    assert 'id="ranks"' not in alone


def test_every_heading_of_a_table_is_explained_on_hover(full: str) -> None:
    headings = re.findall(r'<th scope="col"[^>]*>(.*?)</th>', full)
    assert len(headings) > 100
    assert [h for h in headings if "<abbr title=" not in h and 'class="hidden"' not in h] == []


def test_a_number_without_a_unit_is_a_count(full: str) -> None:
    counts = {"times", "steady steps", "steps", "at the start", "at the end", "CPUs", "threads", "samples", "batch"}
    counts |= {"generation", "blocks", "p", "events", "kernels", "count", "value", "limit", "mean", "beyond the others"}
    bare = set()
    for table in re.findall(r"<table>.*?</table>", full, flags=re.DOTALL):
        headings = re.findall(r'<th scope="col"[^>]*>(.*?)</th>', table)
        for row in table.split("<tr>")[2:]:
            for heading, (kind, cell) in zip(headings, re.findall(r"<td([^>]*)>(.*?)(?=<td|</t|$)", row), strict=True):
                number = re.fullmatch(r"[-+]?[\d.,]+", Page(cell).text)
                if "n" in kind and number and "<small>" not in heading:
                    bare.add(Page(heading).text)
    assert bare - counts == set()


def test_tables_scroll_by_the_keyboard_and_the_first_link_skips_to_the_content(full: str) -> None:
    body = full[full.index("<body>") :]
    assert body.index('<a class="skip" href="#main">') < body.index('<section id="verdict"')
    assert '<main id="main" tabindex="-1">' in body
    areas = re.findall(r'<div class="scroll"[^>]*>', body)
    assert len(areas) == TABLES
    assert all('tabindex="0"' in area and 'aria-label="' in area for area in areas)


def test_rules_that_could_not_judge_stand_by_their_reason_and_mistakes_first() -> None:
    report = sample_report.full_report()
    rules = (*report.not_evaluated, NotEvaluated(rule="broken", why="failed: ZeroDivisionError"))
    table = tables.not_evaluated_table(msgspec.structs.replace(report, not_evaluated=rules))
    assert [tuple(cell.text for cell in row) for row in table.rows] == [
        ("failed: ZeroDivisionError", "broken"),
        ("main-thread CPU time was not measured", "blocked-in-step"),
        ("fewer than 2 epochs", "worker-startup, epoch-boundary-idle"),
    ]


def test_a_finding_without_a_gain_says_nothing_of_one() -> None:
    text = render_html(sample_report.full_report())
    assert text.count('<p class="gain">') == 3
    assert "no bound known" not in text


def test_a_copy_elsewhere_names_the_folder_of_the_run(tmp_path: Path) -> None:
    html.write(sample_report.full_report(), tmp_path / "copy.html", Path("runs/digits/version_0/gpuprof"))
    text = (tmp_path / "copy.html").read_text(encoding="utf-8")
    assert "gpuprof compare runs/digits/version_0 runs/digits/version_1" in text
    assert str(tmp_path) not in text
