"""A command line in a report: what was run can be told, what is secret cannot."""

from __future__ import annotations

import pytest

from lightning_gpuprof.model.command_line import MAX_TEXT, shown_arguments


@pytest.mark.parametrize(
    ("words", "shown"),
    [
        ([], ""),
        (["fit", "--lr", "1", "--name=a b"], "fit --lr 1 '--name=a b'"),
        (["--api-key", "x1", "--lr", "1"], "--api-key *** --lr 1"),
        (["--logger.api_key=x1", "--db-password=x1"], "--logger.api_key=*** --db-password=***"),
        (["--use-auth", "--lr", "1"], "--use-auth --lr 1"),
        (["HF_TOKEN=x1"], "HF_TOKEN=***"),
        (["--data", "s3://me:x1@host/a"], "--data 's3://***@host/a'"),
    ],
)
def test_secrets_are_left_out(words: list[str], shown: str) -> None:
    assert shown_arguments(words) == shown


def test_a_long_line_is_cut() -> None:
    assert len(shown_arguments(["x" * 1000])) == MAX_TEXT
