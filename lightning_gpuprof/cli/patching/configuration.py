"""Sets one value in a LightningCLI YAML and leaves all other text as it was written.

Edits are made in the text, at the places where PyYAML found the nodes, and each result is read again: if it differs in
anything but the setting, it is not taken. Libraries that keep comments rewrite quotes, indents and line breaks.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import msgspec
import yaml

from lightning_gpuprof.cli.patching.pieces import NotPlacedError
from lightning_gpuprof.errors import PatchError
from lightning_gpuprof.model.journal import Value

Node = Any
"""Of PyYAML, which has no types."""
Keys = Sequence[str | int]
_SEQUENCE = "tag:yaml.org,2002:seq"
_NULL = "tag:yaml.org,2002:null"


class Configuration(msgspec.Struct, frozen=True, dict=True):
    """One YAML file.

    Args:
        path: For messages.
        text: Of the file.
    """

    path: Path
    text: str

    @cached_property
    def root(self) -> Node:
        """The nodes.

        Raises:
            PatchError: It is not YAML of settings.
        """
        try:
            root = yaml.compose(self.text, Loader=yaml.SafeLoader)
        except yaml.YAMLError as error:
            mark = getattr(error, "problem_mark", None)
            line = f":{mark.line + 1}" if mark is not None else ""
            why = getattr(error, "problem", None) or "not readable"
            raise PatchError(f"{self.path}{line} is not YAML ({why}): nothing was changed") from error
        if not isinstance(root, yaml.MappingNode):
            raise PatchError(f"{self.path} is not a configuration of LightningCLI: nothing was changed")
        return root

    @cached_property
    def top(self) -> tuple[str, ...]:
        """Where ``trainer``, ``model`` and ``data`` are: below ``fit`` in a file for all subcommands."""
        return ("fit",) if isinstance(self.node(("fit",)), yaml.MappingNode) else ()

    def node(self, path: Keys) -> Node | None:
        """What is at a path; None if nothing is."""
        found: Node = self.root
        for key in path:
            if isinstance(found, yaml.SequenceNode) and isinstance(key, int):
                found = found.value[key]
                continue
            pair = _pair(found, key) if isinstance(found, yaml.MappingNode) else None
            if pair is None:
                return None
            found = pair[1]
        return found

    def class_name(self, section: str) -> str:
        """The class that a section names by its path, without the package; empty if it names none."""
        node = self.node((*self.top, section, "class_path"))
        return str(node.value).rpartition(".")[2] if isinstance(node, yaml.ScalarNode) else ""

    def arguments_of(self, section: str) -> tuple[str, ...] | None:
        """The path to the arguments of a section's class; None if there is no such section."""
        path = (*self.top, section)
        if not isinstance(self.node(path), yaml.MappingNode):
            return None
        return (*path, "init_args") if self.class_name(section) else path

    def classes(self, name: str) -> list[tuple[str | int, ...]]:
        """The paths of all objects of a class."""
        return list(self._classes(self.root, (), name.rpartition(".")[2]))

    def _classes(self, node: Node, path: tuple[str | int, ...], name: str) -> Any:
        if isinstance(node, yaml.SequenceNode):
            for index, item in enumerate(node.value):
                yield from self._classes(item, (*path, index), name)
        elif isinstance(node, yaml.MappingNode):
            pair = _pair(node, "class_path")
            if pair is not None and str(pair[1].value).rpartition(".")[2] == name:
                yield path
            for key, value in node.value:
                yield from self._classes(value, (*path, str(key.value)), name)

    def set(self, path: Keys, value: Value) -> Configuration:
        """The file with one value set.

        Args:
            path: Of keys from the top.
            value: A scalar.

        Returns:
            A new one, all other text as it was; the file on disk stays.

        Raises:
            NotPlacedError: Something else is there.
        """
        written = _written(value)
        for depth in range(len(path), -1, -1):
            node = self.node(path[:depth])
            if node is not None:
                break
        if depth == len(path):
            text = self._replaced(path, node, written, value)
        else:
            text = self._inserted(path[:depth], _block([str(key) for key in path[depth:]], written))
        return self._checked(text, path, yaml.compose(written, Loader=yaml.SafeLoader))

    def add_callback(self, class_path: str, arguments: dict[str, Value]) -> Configuration:
        """The file with one more callback of the trainer.

        Args:
            class_path: Of the callback.
            arguments: Of its constructor.

        Returns:
            A new one, all other text as it was; the file on disk stays.

        Raises:
            NotPlacedError: ``trainer.callbacks`` is not a list with one item per line, or nothing fits there.
        """
        path = (*self.top, "trainer", "callbacks")
        item = [f"- class_path: {class_path}", "  init_args:"]
        item += [f"    {name}: {_written(value)}" for name, value in arguments.items()]
        node = self.node(path)
        if isinstance(node, yaml.SequenceNode) and node.value and not node.flow_style:
            last = node.value[-1]
            margin = " " * node.start_mark.column
            text = self._after_line(_end(last), [f"{margin}{line}" for line in item])
        elif node is not None and _is_empty(node):
            text = self._inserted(path, item)
        elif node is None:
            owner = path[:-1] if self.node(path[:-1]) is not None else self.top
            lines = ["callbacks:", *(f"  {line}" for line in item)]
            text = self._inserted(owner, lines if owner else ["trainer:", *(f"  {line}" for line in lines)])
        else:
            raise NotPlacedError(f"{self.path.name} has trainer.callbacks in a form that is not edited")
        added = yaml.compose("\n".join(item), Loader=yaml.SafeLoader)
        before = [] if node is None or _is_empty(node) else list(node.value)
        return self._checked(text, path, yaml.SequenceNode(_SEQUENCE, [*before, added.value[0]]))

    def remove_item(self, path: Keys, index: int) -> Configuration:
        """The file without one item of a list.

        Args:
            path: Of the list.
            index: Of the item.

        Returns:
            A new one, all other text as it was; of an only item ``[]`` is left. The file on disk stays.

        Raises:
            NotPlacedError: The path is not a list, its lines cannot be edited, or something else would change.
        """
        node = self.node(path)
        if not isinstance(node, yaml.SequenceNode):
            raise NotPlacedError(f"{_dotted(path)} in {self.path.name} is not a list")
        items, gone = node.value, node.value[index]
        start, end = gone.start_mark.index, _end(gone)
        if node.flow_style:
            start, end = (
                (start, items[index + 1].start_mark.index)
                if index + 1 < len(items)
                else (_end(items[index - 1]) if index else start, end)
            )
        else:
            start = self.text.rfind("\n", 0, start) + 1
            if self.text[start : gone.start_mark.index].strip() != "-":
                raise NotPlacedError(f"{_dotted(path)} in {self.path.name} is in a form that is not edited")
            end = self._line_end(end)
        text = self.text[:start] + self.text[end:]
        if len(items) == 1 and not node.flow_style:
            owner = self.node(path[:-1])
            pair = _pair(owner, path[-1])
            if pair is None:
                raise NotPlacedError(f"{_dotted(path)} in {self.path.name} is in a form that is not edited")
            colon = self.text.index(":", pair[0].end_mark.index) + 1
            text = text[:colon] + " []" + text[colon:]
        left = yaml.SequenceNode(_SEQUENCE, [one for i, one in enumerate(items) if i != index])
        return self._checked(text, path, left)

    def _replaced(self, path: Keys, node: Node, written: str, value: Value) -> str:
        if not isinstance(node, yaml.ScalarNode):
            raise NotPlacedError(f"{_dotted(path)} in {self.path.name} is not a single value")
        owner = self.node(path[:-1])
        pair = _pair(owner, path[-1]) if isinstance(owner, yaml.MappingNode) else None
        if pair is None or node.start_mark.index < pair[0].end_mark.index:
            raise NotPlacedError(f"{_dotted(path)} in {self.path.name} is an alias of another place")
        if _is_absent(node):
            colon = self.text.index(":", pair[0].end_mark.index) + 1
            return f"{self.text[:colon]} {written}{self.text[colon:]}"
        if isinstance(value, str) and node.style in ("'", '"') and not set(value) & set("'\"\\"):
            written = f"{node.style}{value}{node.style}"
        return self.text[: node.start_mark.index] + written + self.text[node.end_mark.index :]

    def _inserted(self, path: Keys, lines: Sequence[str]) -> str:
        """The text with further keys in a mapping."""
        node = self.node(path)
        if isinstance(node, yaml.MappingNode) and node.flow_style:
            if len(lines) > 1:
                raise NotPlacedError(f"{_dotted(path)} in {self.path.name} is in braces: put it in by hand")
            at = len(self.text[: node.end_mark.index - 1].rstrip())
            comma = ", " if node.value and self.text[at - 1] != "," else " " if node.value else ""
            return self.text[:at] + comma + lines[0] + self.text[at:]
        if isinstance(node, yaml.MappingNode) and node.value:
            plain = [pair for pair in node.value if isinstance(pair[1], yaml.ScalarNode)] if path else []
            key, value = (plain or node.value)[-1]
            margin = " " * node.value[0][0].start_mark.column
            return self._after_line(_end_of_pair(key, value), [margin + line for line in lines])
        if node is None or not _is_empty(node) or not path:
            raise NotPlacedError(f"{_dotted(path)} in {self.path.name} has no settings")
        owner: Node = self.node(path[:-1])
        key, value = next(pair for pair in owner.value if pair[0].value == path[-1])
        margin = " " * (key.start_mark.column + 2)
        text = self.text
        if not _is_absent(value):  # `data: null`
            start = len(text[: value.start_mark.index].rstrip(" "))
            text = text[:start] + text[value.end_mark.index :]
        return Configuration(self.path, text)._after_line(key.end_mark.index, [margin + line for line in lines])

    def _after_line(self, index: int, lines: Sequence[str]) -> str:
        newline = "\r\n" if "\r\n" in self.text else "\n"
        at = self._line_end(index)
        begin = self.text[:at]
        begin += "" if begin.endswith("\n") else newline
        return begin + "".join(line + newline for line in lines) + self.text[at:]

    def _line_end(self, index: int) -> int:
        found = self.text.find("\n", index)
        return len(self.text) if found < 0 else found + 1

    def _checked(self, text: str, path: Keys, value: Node) -> Configuration:
        """The new text, if nothing but the value at the path is different."""
        wanted = _plain(self.root)
        inner = wanted
        for key in path[:-1]:
            if isinstance(key, str) and not isinstance(inner.get(key), (dict, list)):
                inner[key] = {}
            inner = inner[key]
        inner[path[-1]] = _plain(value)
        new = Configuration(self.path, text)
        try:
            same = _plain(new.root) == wanted
        except PatchError:
            same = False
        if not same:
            raise NotPlacedError(f"{_dotted(path)} in {self.path.name} cannot be set without changing something else")
        return new


def _plain(node: Node) -> Any:
    """Nodes as dicts, lists and scalars with their types."""
    if isinstance(node, yaml.MappingNode):
        keys = [str(key.value) for key, _ in node.value]
        if len(set(keys)) < len(keys):
            raise NotPlacedError(f"line {node.start_mark.line + 1} of the YAML begins a mapping that has a key twice")
        return {key: _plain(value) for key, (_, value) in zip(keys, node.value, strict=True)}
    if isinstance(node, yaml.SequenceNode):
        return [_plain(item) for item in node.value]
    return (node.tag, node.value)


def _pair(mapping: Node, key: str | int) -> tuple[Node, Node] | None:
    return next((pair for pair in mapping.value if pair[0].value == key), None)


def _is_empty(node: Node) -> bool:
    return isinstance(node, yaml.ScalarNode) and node.tag == _NULL


def _is_absent(node: Node) -> bool:
    """Whether a null is not even written."""
    return _is_empty(node) and node.value == ""


def _end(node: Node) -> int:
    """Where a node's text ends; PyYAML has a block end where the next begins."""
    if isinstance(node, yaml.ScalarNode) and node.style in ("|", ">"):
        text = node.end_mark.buffer
        return int(node.end_mark.index) if text is None else len(text[: node.end_mark.index].rstrip())
    if isinstance(node, yaml.ScalarNode) or node.flow_style or not node.value:
        return int(node.end_mark.index)
    last = node.value[-1]
    return _end_of_pair(*last) if isinstance(node, yaml.MappingNode) else _end(last)


def _end_of_pair(key: Node, value: Node) -> int:
    """An alias is where its anchor is, and what is not written is nowhere."""
    after: int = key.end_mark.index
    return after if _is_absent(value) else max(after, _end(value))


def _written(value: Value) -> str:
    return str(yaml.safe_dump(value, width=10**6, allow_unicode=True)).split("\n...")[0].strip()


def _block(keys: Sequence[str], written: str) -> list[str]:
    """Nested keys, one a line; the last has the value."""
    lines = [f"{'  ' * depth}{key}:" for depth, key in enumerate(keys)]
    lines[-1] += f" {written}"
    return lines


def _dotted(path: Keys) -> str:
    return ".".join(map(str, path))
