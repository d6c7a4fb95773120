"""TensorBoard's installed plugins flow in; what ``gpuprof doctor`` says of our tab there flows out."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from importlib import import_module, metadata

from lightning_gpuprof import __version__
from lightning_gpuprof.cli.check import Check, State

NAME = "TensorBoard's GPU Profiler tab"
GROUP = "tensorboard_plugins"
_PLUGIN = "lightning_gpuprof.tensorboard_plugin.plugin"


def tab_check(
    tensorboard: str | None,
    entries: Iterable[metadata.EntryPoint],
    load: Callable[[str], object] = import_module,
) -> Check:
    """Whether TensorBoard can show our tab.

    Args:
        tensorboard: Its version; None if it is not installed.
        entries: The plugins that TensorBoard would find.
        load: Imports the plugin, with what it needs of TensorBoard.
    """
    if tensorboard is None:
        return _check("absent", "TensorBoard is not installed: pip install tensorboard; report.html has the same views")
    version = f"{__version__} in TensorBoard {tensorboard}"
    own = [entry for entry in entries if entry.name == "gpuprof"]
    if not own:
        return _check("problem", "its entry point is missing: reinstall lightning-gpuprof", version)
    try:
        own[0].load()
        load(_PLUGIN)
    except Exception as error:  # TensorBoard's own dependencies fail in many ways
        why = f"{type(error).__name__}: {error}"
        return _check("problem", f"it cannot be loaded ({why}): pip install --upgrade tensorboard", version)
    return _check("ok", "", version)


def _check(state: State, meaning: str, value: str = "") -> Check:
    return Check(area="plugins", name=NAME, state=state, value=value, meaning=meaning)
