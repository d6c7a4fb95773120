"""Ranges for tests: writes down what is open inside what."""


class NotingNvtx:
    """Fails, where asked to, like a torch without NVTX."""

    def __init__(self, broken: bool = False) -> None:
        self.open: list[str] = []
        self.paths: list[str] = []
        self.colors: dict[str, int] = {}
        """Of ranges that have one."""
        self.broken = broken

    def push(self, name: str, color: int | None = None) -> None:
        if self.broken:
            raise RuntimeError("NVTX functions not installed")
        self.open.append(name)
        self.paths.append("/".join(self.open))
        if color is not None:
            self.colors[name] = color

    def pop(self) -> None:
        if self.broken:
            raise RuntimeError("NVTX functions not installed")
        self.open.pop()
