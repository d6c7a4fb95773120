"""What tests of commands share."""

from collections.abc import Callable

import pytest

from lightning_gpuprof.cli.main import main


@pytest.fixture
def printed(capsys: pytest.CaptureFixture[str]) -> Callable[..., str]:
    """Calls ``gpuprof`` with words, and gives what it printed on stdout; it must have ended with the exit code."""

    def call(*words: object, code: int = 0) -> str:
        assert main([str(word) for word in words]) == code
        return capsys.readouterr().out

    return call


@pytest.fixture
def refused(capsys: pytest.CaptureFixture[str]) -> Callable[..., str]:
    """Calls ``gpuprof`` with words that it has to refuse, and gives what it says of them on stderr."""

    def call(*words: object) -> str:
        assert main([str(word) for word in words]) == 2
        return capsys.readouterr().err

    return call
