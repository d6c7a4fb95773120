"""The syntax tree of a source file, and what its names stand for by its imports."""

import ast
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from lightning_gpuprof.cli.patching.pieces import dotted
from lightning_gpuprof.errors import PatchError

FRAMEWORKS = frozenset(("torch", "lightning", "pytorch_lightning", "lightning_fabric", "torch_geometric", "torchdata"))
_HOMONYMS = frozenset(("DataLoader", "Trainer", "LightningCLI"))
"""Other packages have classes of these names."""
_SHORT = {"nn": "torch", "F": "torch"}
"""As advice writes names of torch -> where they are."""

Function = ast.FunctionDef | ast.AsyncFunctionDef
SCOPES = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda, ast.ClassDef)


@dataclass(frozen=True, eq=False)
class Source:
    """One file of the user's.

    Args:
        path: Where it is.
        content: As on disk.
        tree: Parsed.
    """

    path: Path
    content: bytes
    tree: ast.Module

    @cached_property
    def parents(self) -> Mapping[ast.AST, ast.AST]:
        """Each node's parent."""
        return {child: node for node in ast.walk(self.tree) for child in ast.iter_child_nodes(node)}

    @cached_property
    def calls(self) -> list[ast.Call]:
        """All calls, in the order of lines."""
        found = [node for node in ast.walk(self.tree) if isinstance(node, ast.Call)]
        return sorted(found, key=lambda node: (node.lineno, node.col_offset))

    @cached_property
    def _imported(self) -> dict[str, set[str]]:
        """Names -> what is imported by them anywhere in the file; ``*``: modules of which all names are."""
        found: dict[str, set[str]] = defaultdict(set)
        for node in ast.walk(self.tree):
            if isinstance(node, ast.Import):
                for name in node.names:
                    found[name.asname or name.name.split(".")[0]].add(
                        name.name if name.asname else name.name.split(".")[0]
                    )
            elif isinstance(node, ast.ImportFrom):
                module = "." * node.level + (node.module or "")
                for name in node.names:
                    found[name.asname or name.name].add(module if name.name == "*" else f"{module}.{name.name}")
        for node in self.tree.body:  # Loader = torch.utils.data.DataLoader
            if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name) and dotted(node.value):
                found[node.targets[0].id] |= self._qualified(dotted(node.value), found)
        return found

    def _qualified(self, name: str, imported: Mapping[str, set[str]]) -> set[str]:
        root, _, rest = name.partition(".")
        known = imported.get(root) or ({f"{module}.{root}" for module in imported.get("*", ())} | {root})
        return {f"{full}.{rest}" if rest else full for full in known}

    def qualified(self, node: ast.expr) -> set[str]:
        """What an expression may stand for, dotted from the package on."""
        while isinstance(node, ast.Subscript):  # DataLoader[int]
            node = node.value
        return self._qualified(dotted(node), self._imported) if dotted(node) else set()

    def is_of(self, node: ast.expr, name: str) -> bool:
        """Whether an expression is the class or function that advice names so.

        Args:
            node: What is called.
            name: As in :attr:`Change.call`.
        """
        owner, _, last = name.rpartition(".")
        roots = {_SHORT.get(owner.split(".")[0], owner.split(".")[0])} if owner else FRAMEWORKS
        for full in self.qualified(node):
            if full.rpartition(".")[2] != last:
                continue
            if full.split(".")[0] in roots or (not owner and last not in _HOMONYMS):
                return True
        return False

    def local_name(self, full: str, at: ast.AST) -> str | None:
        """By what name something imported can be used at a place.

        Args:
            full: Such as ``torch`` or ``datetime.timedelta``.
            at: The place.

        Returns:
            As code there writes it, by its ``as`` if it has one; None if it is not imported there.
        """
        around = {self.tree, *self.scopes(at)}
        module, _, last = full.rpartition(".")
        for node in ast.walk(self.tree):
            if not isinstance(node, (ast.Import, ast.ImportFrom)) or self.enclosing(node) not in around:
                continue
            if any(isinstance(outer, ast.If) and "TYPE_CHECKING" in ast.dump(outer.test) for outer in self.outer(node)):
                continue
            for name in node.names:
                if isinstance(node, ast.ImportFrom) and (node.module, name.name) == (module, last):
                    return name.asname or name.name
                if isinstance(node, ast.Import) and name.name == full:
                    return name.asname or full
                if isinstance(node, ast.Import) and name.asname is None and name.name.split(".")[0] == full:
                    return full  # import torch.nn
        return None

    def outer(self, node: ast.AST) -> Iterator[ast.AST]:
        """The nodes around a node, innermost first."""
        while (parent := self.parents.get(node)) is not None:
            yield parent
            node = parent

    def scopes(self, node: ast.AST) -> Iterator[Function | ast.Lambda]:
        """The functions around a node, innermost first."""
        return (outer for outer in self.outer(node) if isinstance(outer, (Function, ast.Lambda)))

    def enclosing(self, node: ast.AST) -> ast.AST:
        """The innermost function or class around a node, else the module."""
        return next((outer for outer in self.outer(node) if isinstance(outer, SCOPES)), self.tree)

    def class_of(self, node: ast.AST) -> ast.ClassDef | None:
        """The class whose method a node is in. None: it is in no class."""
        return next((outer for outer in self.outer(node) if isinstance(outer, ast.ClassDef)), None)

    def statement_of(self, node: ast.AST) -> ast.stmt:
        """The innermost statement around a node."""
        return next(one for one in (node, *self.outer(node)) if isinstance(one, ast.stmt))


def parse(path: Path, content: bytes) -> Source:
    """Parse a file.

    Args:
        path: For messages.
        content: Of the file.

    Returns:
        The file with its syntax tree; the content is kept as it is.

    Raises:
        PatchError: It is not Python.
    """
    try:
        return Source(path, content, ast.parse(content))
    except (SyntaxError, ValueError, RecursionError) as error:
        line = f":{error.lineno}" if isinstance(error, SyntaxError) and error.lineno else ""
        why = error.msg if isinstance(error, SyntaxError) else str(error)
        raise PatchError(f"{path}{line} is not Python that runs ({why}): nothing was changed") from error


def within(scope: ast.AST) -> Iterator[ast.AST]:
    """The nodes of a scope without those of functions and classes in it."""
    for child in ast.iter_child_nodes(scope):
        if not isinstance(child, SCOPES):
            yield child
            yield from within(child)


def returned(function: Function) -> list[ast.expr]:
    """What a function gives back, in all its returns."""
    return [node.value for node in within(function) if isinstance(node, ast.Return) and node.value is not None]
