"""``gpuprof explain``: a rule's id in, its page out."""

from __future__ import annotations

import json

import pytest

from lightning_gpuprof.cli.main import main


def test_a_rules_page_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain", "input-bound"]) == 0
    assert "input-bound" in capsys.readouterr().out


def test_json_holds_rule_and_page(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain", "input-bound", "--json"]) == 0
    shown = json.loads(capsys.readouterr().out)
    assert shown["rule"] == "input-bound"
    assert len(shown["page"]) > 100


def test_an_unknown_rule_is_an_error(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain", "no-such-rule"]) == 2
    error = capsys.readouterr().err
    assert error.startswith("gpuprof: ")
    assert "internal error" not in error
