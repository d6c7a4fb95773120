"""What TensorBoard's entry point names; it imports next to nothing: an error would keep TensorBoard from starting."""

from typing import Any

from tensorboard.plugins import base_plugin


class GpuProfLoader(base_plugin.TBLoader):  # type: ignore[misc]
    """Makes the plugin; what fails in here TensorBoard logs, and starts without the tab."""

    def load(self, context: Any) -> Any:
        """The plugin for a TensorBoard."""
        from lightning_gpuprof.tensorboard_plugin.plugin import GpuProfPlugin

        return GpuProfPlugin(context)
