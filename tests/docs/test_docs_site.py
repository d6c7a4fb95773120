"""The site: builds without a warning, names every page, and asks for nothing outside of itself."""

import functools
import re
import subprocess
import threading
from collections.abc import Iterator
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
import yaml
from chromium import PATIENCE_MS
from doc_blocks import ROOT
from parsed_page import Page
from python_process import run_python

import site_hooks


def build(source: Path, site: Path, *, code: int = 0) -> subprocess.CompletedProcess[str]:
    pytest.importorskip("material", reason="the site is built with mkdocs-material")
    command = ("-m", "mkdocs", "build", "--strict", "--config-file", source / "mkdocs.yml", "-d", site)
    return run_python(*command, code=code, NO_MKDOCS_2_WARNING="1", NO_COLOR="1")


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    assert "WARNING" not in build(ROOT, folder).stderr
    return folder


def outside(address: str) -> bool:
    return bool(re.search(r"(^|url\(\s*['\"]?|,\s*)(https?:)?//", address.strip(), re.IGNORECASE))


def loaded_by(text: str) -> list[str]:
    """What a page loads; what it only links to is not loaded."""
    names = ("src", "href", "srcset", "data", "poster", "action", "style")
    return [value for tag, name, value in Page(text).attributes if value and name in names and tag != "a"]


def test_every_page_is_there_and_in_the_navigation(site: Path) -> None:
    docs = ROOT / "docs"
    names = {page.relative_to(docs).with_suffix(".html").as_posix() for page in docs.rglob("*.md")}
    made = {page.relative_to(site).as_posix() for page in site.rglob("*.html")} - {"404.html"}
    assert made == {name.replace("README", "index") for name in names}
    nav = site_hooks.expanded(_configured_nav(), docs)
    listed = [name.removesuffix(".md") + ".html" for name in site_hooks._names(nav)]
    assert sorted(listed) == sorted(names)


def test_no_page_loads_anything_from_outside(site: Path) -> None:
    pages = list(site.rglob("*.html"))
    assert len(pages) > 100
    for page in pages:
        loaded = loaded_by(page.read_text(encoding="utf-8"))
        assert any(address.endswith(".js") for address in loaded)
        assert [address for address in loaded if outside(address)] == [], page.name
    for sheet in site.rglob("*.css"):
        asked = re.findall(r"(?:url\(|@import)\s*['\"]?([^'\")]+)", sheet.read_text(encoding="utf-8"))
        assert [address for address in asked if outside(address)] == [], sheet.name


def test_every_block_of_code_is_drawn_as_one(site: Path) -> None:
    for page in site.rglob("*.html"):
        assert not re.search(r"<(p|li|td|code)>[^<]*```", page.read_text(encoding="utf-8")), page.name
    assert "no-run" not in (site / "reference" / "profiler.html").read_text(encoding="utf-8")


def test_what_would_be_loaded_from_outside_is_seen() -> None:
    for tag in (
        '<script src="https://a.b/c.js">',
        '<link rel="stylesheet" href="//a.b/c.css">',
        '<img srcset="x.png 1x, https://a.b/c.png 2x">',
        "<p style=\"background: url('http://a.b/c.png')\">",
    ):
        assert any(map(outside, loaded_by(tag))), tag
    assert not any(map(outside, loaded_by('<a href="https://a.b"><img src="../a/b.png">')))


def test_links_to_pages_and_headings_that_are_not_there_stop_the_build(tmp_path: Path) -> None:
    docs = tmp_path / "docs"
    docs.mkdir()
    (docs / "index.md").write_text("# A\n\n[no page](b.md), [no heading](#c), [neither](../README.md)\n")
    configured = yaml.safe_load((ROOT / "mkdocs.yml").read_text(encoding="utf-8"))
    small = {name: configured[name] for name in ("site_name", "validation", "markdown_extensions")}
    (tmp_path / "mkdocs.yml").write_text(yaml.safe_dump({**small, "plugins": [], "theme": {"name": "mkdocs"}}))
    done = build(tmp_path, tmp_path / "site", code=1)
    for missing in ("b.md", "#c", "../README.md"):
        assert f"'{missing}'" in done.stderr


@pytest.mark.parametrize("name", ["README.md", "CONTRIBUTING.md", "CHANGELOG.md"])
def test_links_from_the_front_door_lead_somewhere(name: str) -> None:
    text = (ROOT / name).read_text(encoding="utf-8")
    for link in re.findall(r"\]\((?!https?://|#)([^)#]+)", text):
        assert (ROOT / link).exists(), link


def test_wildcards_of_the_navigation(tmp_path: Path) -> None:
    for name in ("index.md", "new.md", "rest/b.md", "rest/index.md", "rules/README.md"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("### Family\n\n| [`a-rule`](a-rule.md) | finds |\n")
    nav = [{"Start": ["index.md", "*"]}, {"Rest": ["rest/*"]}, {"Rules": ["rules/*"]}]
    assert site_hooks.expanded(nav, tmp_path) == [
        {"Start": ["index.md", "new.md"]},
        {"Rest": ["rest/index.md", "rest/b.md"]},
        {"Rules": ["rules/README.md", {"Family": ["rules/a-rule.md"]}]},
    ]


def _configured_nav() -> site_hooks.Nav:
    nav: site_hooks.Nav = yaml.safe_load((ROOT / "mkdocs.yml").read_text(encoding="utf-8"))["nav"]
    return nav


class Quiet(SimpleHTTPRequestHandler):
    def log_message(self, *args: object) -> None:
        pass


@pytest.fixture
def served(site: Path) -> Iterator[str]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Quiet, directory=str(site)))
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.mark.slow
@pytest.mark.parametrize("from_disk", [False, True], ids=["served", "from disk"])
def test_a_reader_without_a_network_can_search_and_asks_nobody(
    browser: Any, served: str, site: Path, from_disk: bool
) -> None:
    asked: list[str] = []
    problems: list[str] = []
    page = browser.new_page()
    page.set_default_timeout(PATIENCE_MS)
    page.on("request", lambda request: asked.append(request.url))
    page.on("pageerror", lambda error: problems.append(str(error)))
    page.goto((site / "index.html").as_uri() if from_disk else f"{served}/index.html")
    page.locator("input.md-search__input").press_sequentially("straggler")
    page.locator(".md-search-result__item a", has_text="straggler-rank").first.click()
    page.wait_for_url("**/rules/straggler-rank.html*")
    page.close()
    assert problems == []
    assert len(asked) > 5
    allowed = ("file://",) if from_disk else (served,)
    assert [url for url in asked if not url.startswith((*allowed, "data:", "blob:", "about:"))] == []
