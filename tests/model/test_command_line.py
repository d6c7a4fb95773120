"""A command line in a report: what was run can be reported, what is secret cannot."""

import pytest

from lightning_gpuprof.model.command_line import MAX_TEXT, arguments_hash, script_name, shown_arguments


@pytest.mark.parametrize(
    ("words", "shown"),
    [
        ([], ""),
        (["fit", "--lr", "1e-3", "-c", "configs/a-b.yaml"], "fit --lr 1e-3 -c configs/a-b.yaml"),
        (["--trainer.devices=2", "--fast=true", "-v"], "--trainer.devices=2 --fast=true -v"),
        (["../train.py", "--delta", "-1.5"], "../train.py --delta -1.5"),
        (["--use-auth", "--lr", "1"], "--use-auth *** 1"),
        (["--data.pin_memory=true"], "--data.pin_memory=true"),
    ],
)
def test_what_cannot_be_secret_is_shown(words: list[str], shown: str) -> None:
    assert shown_arguments(words) == shown


@pytest.mark.parametrize(
    ("words", "shown"),
    [
        (["--wandb_key", "abc"], "--wandb_key ***"),
        (["--name=abc"], "--name=***"),
        (["--pwd", "1234"], "--pwd ***"),
        (["--pin=1234"], "--pin=***"),
        (["--card", "1234567812345678"], "--card ***"),
        (["--password", "-abc"], "--password ***"),
        (["--password", "--abc", "--lr", "1"], "--password *** --lr 1"),
        (["-pabc"], "***"),
        (["--logger", '{"api_key": "abc"}'], "--logger ***"),
        (["--header", "Authorization: Bearer abc"], "--header ***"),
        (["--url=https://h/?token=abc"], "--url=***"),
        (["https://h/?a=1&sig=abc"], "***"),
        (["s3://me:a/b@host"], "***"),
        (["postgres://u:p@ss@h"], "***"),
        (["s3://me:pw@host/***"], "***"),
        (["s3://me:pw@host/a.yaml"], "***"),
        (["token", "abc"], "*** ***"),
        (["hf_abc", "sk-abc", "AKIAABC", "HF_TOKEN=abc", "YWJj=="], "*** *** *** *** ***"),
        (["fit\nabc", "1\n", "--lr\n"], "*** *** ***"),
    ],
)
def test_everything_else_is_hidden(words: list[str], shown: str) -> None:
    assert shown_arguments(words) == shown


def test_a_long_line_is_cut() -> None:
    assert len(shown_arguments(["1"] * 1000)) == MAX_TEXT


def test_what_is_hidden_or_cut_is_compared() -> None:
    hidden = [arguments_hash(["--max_tokens", str(tokens)]) for tokens in (512, 4096)]
    cut = [arguments_hash(["1"] * 1000 + [last]) for last in ("2", "3")]
    split = [arguments_hash(words) for words in (["a b"], ["a", "b"], ["a\udce9"])]
    assert len({*hidden, *cut, *split}) == 7


def test_no_secret_can_be_told_from_the_hash() -> None:
    tried = [
        secret for secret in range(200_000) if arguments_hash(["--key", str(secret)]) == arguments_hash(["--key", "7"])
    ]
    assert len(tried) > 1


@pytest.mark.parametrize(
    ("path", "name"),
    [("/a/train.py", "train.py"), ("/a/b/__main__.py", "b/__main__.py"), ("__main__.py", "__main__.py"), ("", "")],
)
def test_a_package_is_known_by_its_own_name(path: str, name: str) -> None:
    assert script_name(path) == name
