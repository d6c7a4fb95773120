"""Makes one edit in a source file and leaves the rest as the author wrote it.

Places are nodes of :mod:`ast`, edits are made in libcst's tree of the same text, which keeps comments and blanks.
"""

import ast
import re
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, TypeVar

from lightning_gpuprof.cli.patching.pieces import NotPlacedError
from lightning_gpuprof.cli.patching.source import FRAMEWORKS, Source
from lightning_gpuprof.errors import PatchError

if TYPE_CHECKING:
    import libcst as cst
else:
    try:
        import libcst as cst
    except ImportError as error:
        raise PatchError('a patch of Python code needs libcst: pip install "lightning-gpuprof[patch]"') from error

from libcst.metadata import MetadataWrapper, PositionProvider

_Item = TypeVar("_Item", cst.Arg, cst.Element, cst.ImportAlias)
_Space = cst.BaseParenthesizableWhitespace
_Block = cst.Module | cst.IndentedBlock

POSITIONAL: dict[str, tuple[str, ...]] = {
    "DataLoader": (
        "dataset",
        "batch_size",
        "shuffle",
        "sampler",
        "batch_sampler",
        "num_workers",
        "collate_fn",
        "pin_memory",
        "drop_last",
        "timeout",
        "worker_init_fn",
        "multiprocessing_context",
        "generator",
    ),
    "TQDMProgressBar": ("refresh_rate", "process_position", "leave"),
    "RichProgressBar": ("refresh_rate", "leave", "theme", "console_kwargs"),
    "LearningRateMonitor": ("logging_interval", "log_momentum", "log_weight_decay"),
    "ModelCheckpoint": ("dirpath", "filename", "monitor"),
    "Timer": ("duration", "interval"),
    "EarlyStopping": ("monitor", "min_delta", "patience"),
    "Conv2d": ("in_channels", "out_channels", "kernel_size", "stride", "padding", "dilation", "groups", "bias"),
    "compile": ("model",),
}
"""What may be passed by position and is, by name of the call. torch 2.4 to 2.13, Lightning 2.4 to 2.6."""
_WIDTH = 100
"""Columns from which a call is broken into lines, unless the file has longer ones."""
_KEYWORD_ONLY = frozenset(("fused", "foreach", "capturable", "differentiable", "maximize"))
"""Of optimizers."""


class _Tree:
    """libcst's tree of a file; a NotPlacedError if libcst would not give the file back as it is."""

    def __init__(self, source: Source) -> None:
        self._source = source
        try:
            self.module = cst.parse_module(source.content)
        except cst.ParserSyntaxError as error:
            raise NotPlacedError(f"libcst cannot read {source.path.name}: {error.message}") from error
        if self.module.bytes != source.content:
            raise NotPlacedError(f"{source.path.name} has characters that libcst does not give back as they are")

    @cached_property
    def _at(self) -> Mapping[cst.CSTNode, tuple[tuple[int, int], tuple[int, int]]]:
        wrapper = MetadataWrapper(self.module, unsafe_skip_copy=True)
        return {
            node: ((where.start.line, where.start.column), (where.end.line, where.end.column))
            for node, where in wrapper.resolve(PositionProvider).items()
        }

    @cached_property
    def quote(self) -> str:
        """What most strings of the file are in."""
        words = self.module.code
        return "'" if words.count("'") > words.count('"') else '"'

    @cached_property
    def _lines(self) -> list[str]:
        """Without their ends."""
        return re.split(r"\r\n|\r|\n", self.module.code)

    def _span(self, node: ast.expr | ast.stmt) -> tuple[tuple[int, int], tuple[int, int]]:
        """As libcst counts: columns in characters."""

        def column(line: int, offset: int) -> int:
            return len(self._lines[line - 1].encode("utf-8")[:offset].decode("utf-8", "replace"))

        end_line, end = node.end_lineno or node.lineno, node.end_col_offset or 0
        return (node.lineno, column(node.lineno, node.col_offset)), (end_line, column(end_line, end))

    def call(self, node: ast.Call) -> cst.Call:
        """The same call: its function is at the same place."""
        span = self._span(node.func)
        for found in self._at:
            if isinstance(found, cst.Call) and self._at.get(found.func) == span:
                return found
        raise NotPlacedError(f"the call in line {node.lineno} of {self._source.path.name} cannot be edited")

    def list_of(self, node: ast.List) -> cst.List:
        """The same list."""
        span = self._span(node)
        for found in self._at:
            if isinstance(found, cst.List) and self._at[found] == span:
                return found
        raise NotPlacedError(f"the list in line {node.lineno} of {self._source.path.name} cannot be edited")

    def statement(self, node: ast.stmt) -> tuple[_Block, int]:
        """The block that a statement is in, and its position there; it must be alone on its line."""
        start, _ = self._span(node)
        for block in self._at:
            if not isinstance(block, (cst.Module, cst.IndentedBlock)):
                continue
            for index, one in enumerate(block.body):
                if self._at[one][0] == start:
                    if isinstance(one, cst.SimpleStatementLine) and len(one.body) > 1:
                        break
                    return block, index
        raise NotPlacedError(f"line {node.lineno} of {self._source.path.name} shares its line with other statements")

    def replaced(self, old: cst.CSTNode, new: cst.CSTNode) -> bytes:
        """The file with one node in place of another."""
        changed = new if old is self.module else self.module.deep_replace(old, new)
        return changed.bytes if isinstance(changed, cst.Module) else b""

    def wrapped(self, old: cst.Call, new: cst.Call) -> cst.Call:
        """The new call with one argument a line, where in one line it is too long for this file."""
        (first, _), (last, _) = self._at[old]
        code = self.module.code_for_node(new)
        grown = len(self._lines[last - 1]) + len(code) - len(self.module.code_for_node(old))
        if first != last or "\n" in code or grown <= max(_WIDTH, *map(len, self._lines)):
            return new

        def line(indent: str) -> cst.ParenthesizedWhitespace:
            return cst.ParenthesizedWhitespace(indent=True, last_line=cst.SimpleWhitespace(indent))

        inner = line(self.module.default_indent)
        args = [arg.with_changes(comma=cst.Comma(whitespace_after=inner)) for arg in new.args]
        args[-1] = args[-1].with_changes(comma=cst.Comma(whitespace_after=line("")))
        return new.with_changes(args=args, whitespace_before_args=inner)

    def in_block(self, block: _Block, body: Sequence[cst.BaseStatement | cst.SimpleStatementLine]) -> bytes:
        """The file with other statements in a block."""
        return self.replaced(block, block.with_changes(body=body))

    def expression(self, code: str, like: cst.BaseExpression | None = None) -> cst.BaseExpression:
        """Code parsed, strings in the quotes of what it replaces, else in those of the file."""
        quote = like.quote if isinstance(like, cst.SimpleString) else self.quote
        if re.fullmatch(r'"[^"\'\\]*"', code) and quote == "'":
            code = f"'{code[1:-1]}'"
        return cst.parse_expression(code)


def set_arguments(source: Source, node: ast.Call, name: str, values: Mapping[str, str]) -> bytes:
    """Set or replace keyword arguments of a call.

    Args:
        source: The file.
        node: The call.
        name: Of what is called, as advice writes it.
        values: By name, as code.

    Returns:
        Content of the whole file; ``source.content`` itself if all have these values already.

    Raises:
        NotPlacedError: An argument may be in what the call unpacks, or its position is not known.
    """
    tree = _Tree(source)
    call = before = tree.call(node)
    for key, code in values.items():
        call = _set(tree, call, key, code, name.rpartition(".")[2], f"{source.path.name}:{node.lineno}")
    return source.content if call is before else tree.replaced(before, tree.wrapped(before, call))


def _set(tree: _Tree, call: cst.Call, key: str, code: str, name: str, where: str) -> cst.Call:
    index = _index(call, key, name, where)
    if index is not None:
        old = call.args[index]
        if _is_equal(tree, old.value, code):
            return call
        args = [*call.args]
        args[index] = old.with_changes(value=tree.expression(code, old.value))
        return call.with_changes(args=args)
    unpacked = next((arg for arg in call.args if arg.star == "**" and not _lacks(arg.value, key)), None)
    if unpacked is not None:
        words = tree.module.code_for_node(unpacked.value)
        raise NotPlacedError(f"{where} passes **{' '.join(words.split())}, which may set {key}: set it there")
    like = next((arg for arg in reversed(call.args) if arg.keyword is not None), None)
    equal = cst.AssignEqual(cst.SimpleWhitespace(""), cst.SimpleWhitespace("")) if like is None else like.equal
    return _appended(call, cst.Arg(keyword=cst.Name(key), equal=equal, value=tree.expression(code)))


def _index(call: cst.Call, key: str, name: str, where: str) -> int | None:
    """Which argument of a call is the one that is named; None: it has none."""
    for index, arg in enumerate(call.args):
        if arg.keyword is not None and arg.keyword.value == key:
            return index
    given = [arg for arg in call.args if arg.keyword is None and arg.star == ""]
    unpacks = any(arg.star == "*" for arg in call.args)
    known = POSITIONAL.get(name)
    if known is None and name.endswith("DataLoader") and len(given) == 1:  # a subclass
        known = ("dataset",)
    if key in _KEYWORD_ONLY or not (given or unpacks):
        return None
    if (known is None and name != "Trainer") or (unpacks and (known is None or key in known)):
        raise NotPlacedError(f"{where} passes arguments by position, of which {key} may be one")
    position = known.index(key) if known is not None and key in known else len(given)
    return position if position < len(given) else None


def _is_equal(tree: _Tree, old: cst.BaseExpression, code: str) -> bool:
    try:
        return ast.dump(ast.parse(tree.module.code_for_node(old).strip(), mode="eval")) == ast.dump(
            ast.parse(code, mode="eval")
        )
    except SyntaxError:  # over several lines
        return False


def _lacks(node: cst.BaseExpression, key: str) -> bool:
    """Whether an unpacked dict is written out and has no such key."""
    if not isinstance(node, cst.Dict):
        return False
    keys = [one.key for one in node.elements if isinstance(one, cst.DictElement)]
    literal = len(keys) == len(node.elements) and all(isinstance(one, cst.SimpleString) for one in keys)
    return literal and all(one.evaluated_value != key for one in keys if isinstance(one, cst.SimpleString))


def _appended(call: cst.Call, argument: cst.Arg) -> cst.Call:
    args = [*call.args]
    star = next((index for index, arg in enumerate(args) if arg.star == "**"), None)
    if star is not None:
        between = args[star - 1].comma if star else None
        space = between.whitespace_after if isinstance(between, cst.Comma) else call.whitespace_before_args
        if not isinstance(space, cst.ParenthesizedWhitespace) and not star:
            space = cst.SimpleWhitespace(" ")
        return call.with_changes(
            args=[*args[:star], argument.with_changes(comma=cst.Comma(whitespace_after=_plain(space))), *args[star:]]
        )
    if not args:
        return call.with_changes(args=[argument])
    end = args[-1].whitespace_after_arg
    args[-1] = args[-1].with_changes(whitespace_after_arg=cst.SimpleWhitespace(""))
    args, end = _joined(args, argument, call.whitespace_before_args, end)
    if not isinstance(args[-1].comma, cst.Comma):
        args[-1] = args[-1].with_changes(whitespace_after_arg=end)
    return call.with_changes(args=args)


def _joined(items: Sequence[_Item], new: _Item, begin: _Space, end: _Space) -> tuple[list[_Item], _Space]:
    """One more item after the last, laid out as the others are.

    ``begin`` stands between the opening bracket and the first item, ``end`` before the closing one, where the last
    item has no comma. Returns all items, and the new ``end``.
    """
    last: _Item = items[-1]
    comma = last.comma
    trailing = comma if isinstance(comma, cst.Comma) else None
    # libcst has the end of a call behind its last comma, that of a list before its bracket.
    inside = trailing is not None and not trailing.whitespace_after.empty
    closing = trailing.whitespace_after if trailing is not None and inside else end
    before = items[-2].comma if len(items) > 1 else None
    between: _Space = before.whitespace_after if isinstance(before, cst.Comma) else begin
    between = _plain(between)
    if not isinstance(between, cst.ParenthesizedWhitespace):
        between = between if isinstance(before, cst.Comma) else cst.SimpleWhitespace(" ")
        after = closing
    else:
        if isinstance(closing, cst.ParenthesizedWhitespace):  # a comment behind the last item stays behind it
            between = closing.with_changes(indent=between.indent, last_line=between.last_line)
        after = _plain(closing)
    found = list(items[:-1])
    found.append(last.with_changes(comma=cst.Comma(whitespace_after=between)))
    if trailing is not None:
        new = new.with_changes(comma=trailing.with_changes(whitespace_after=after) if inside else trailing)
    found.append(new)
    return found, end if inside else after


def _plain(space: _Space) -> _Space:
    """White space without its comments."""
    if not isinstance(space, cst.ParenthesizedWhitespace):
        return space
    first = space.first_line.with_changes(comment=None, whitespace=cst.SimpleWhitespace(""))
    return space.with_changes(first_line=first, empty_lines=())


def wrap_argument(source: Source, node: ast.Call, argument: ast.expr, function: str, more: str) -> bytes:
    """Put an argument of a call through a function.

    Args:
        source: The file.
        node: The call.
        argument: One of its arguments.
        function: By its name there.
        more: Further arguments of the function, as code that begins with a comma.

    Returns:
        Content of the whole file.
    """
    tree = _Tree(source)
    call = tree.call(node)
    index = [*node.args, *(keyword.value for keyword in node.keywords)].index(argument)
    arg = call.args[index]
    wrapped = tree.expression(f"{function}({tree.module.code_for_node(arg.value)}{more})")
    args = [*call.args[:index], arg.with_changes(value=wrapped), *call.args[index + 1 :]]
    return tree.replaced(call, call.with_changes(args=args))


def append_item(source: Source, node: ast.List, code: str) -> bytes:
    """One more element at the end of a list.

    Args:
        source: The file.
        node: The list.
        code: Of the element.

    Returns:
        Content of the whole file.

    Raises:
        NotPlacedError: The list unpacks another (``*other``), or the file or the list cannot be edited.
    """
    tree = _Tree(source)
    found = tree.list_of(node)
    new = cst.Element(tree.expression(code))
    if not found.elements:
        return tree.replaced(found, found.with_changes(elements=[new]))
    elements = [one for one in found.elements if isinstance(one, cst.Element)]
    if len(elements) < len(found.elements):
        raise NotPlacedError(f"the list in line {node.lineno} of {source.path.name} unpacks another")
    items, end = _joined(elements, new, found.lbracket.whitespace_after, found.rbracket.whitespace_before)
    closing = found.rbracket.with_changes(whitespace_before=end)
    return tree.replaced(found, found.with_changes(elements=items, rbracket=closing))


def remove_item(source: Source, node: ast.List, index: int) -> bytes:
    """A list without one of its elements.

    Args:
        source: The file.
        node: The list.
        index: Of the element.

    Returns:
        Content of the whole file; a list of one is empty then.
    """
    tree = _Tree(source)
    found = tree.list_of(node)
    items, gone = [one for i, one in enumerate(found.elements) if i != index], found.elements[index]
    if not items:
        return tree.replaced(found, cst.List([]))
    if index < len(items):
        return tree.replaced(found, found.with_changes(elements=items))
    # It was the last: the one before closes the list as it did, and keeps its comment.
    last, trailing = items[-1], gone.comma if isinstance(gone.comma, cst.Comma) else None
    end = found.rbracket.whitespace_before
    space = last.comma.whitespace_after if isinstance(last.comma, cst.Comma) else end
    if isinstance(space, cst.ParenthesizedWhitespace) and isinstance(end, cst.ParenthesizedWhitespace):
        end = space.with_changes(indent=end.indent, last_line=end.last_line)
    elif isinstance(space, cst.ParenthesizedWhitespace) and space.first_line.comment is not None:
        end = space
    items[-1] = last.with_changes(comma=trailing or cst.MaybeSentinel.DEFAULT)
    closing = found.rbracket.with_changes(whitespace_before=end)
    return tree.replaced(found, found.with_changes(elements=items, rbracket=closing))


def replace_value(source: Source, node: ast.stmt, line: str) -> bytes:
    """A line in place of a statement; a comment behind it stays.

    Args:
        source: The file.
        node: The statement.
        line: The new one.

    Returns:
        Content of the whole file.

    Raises:
        NotPlacedError: The old or the new statement is a compound one (``if``, ``def``), or the old one shares its line
            with others, or libcst cannot edit the file.
    """
    tree = _Tree(source)
    block, index = tree.statement(node)
    old, new = block.body[index], cst.parse_statement(line)
    if not isinstance(old, cst.SimpleStatementLine) or not isinstance(new, cst.SimpleStatementLine):
        raise NotPlacedError(f"line {node.lineno} of {source.path.name} cannot be replaced")
    return tree.in_block(block, [*block.body[:index], old.with_changes(body=new.body), *block.body[index + 1 :]])


def insert_before(source: Source, node: ast.stmt, line: str) -> bytes:
    """A line before a statement, below the comment that it has.

    Args:
        source: The file.
        node: The statement.
        line: The new one.

    Returns:
        Content of the whole file.
    """
    tree = _Tree(source)
    block, index = tree.statement(node)
    return tree.in_block(block, _inserted(block, index, line))


def _inserted(block: _Block, index: int, line: str) -> list[cst.BaseStatement | cst.SimpleStatementLine]:
    old, new = block.body[index], cst.parse_statement(line)
    header: tuple[cst.EmptyLine, ...] = ()
    if isinstance(old, (cst.SimpleStatementLine, cst.BaseCompoundStatement)) and hasattr(old, "leading_lines"):
        header, old = tuple(old.leading_lines), old.with_changes(leading_lines=())
    return [*block.body[:index], new.with_changes(leading_lines=header), old, *block.body[index + 1 :]]


def remove_statement(source: Source, node: ast.stmt) -> bytes:
    """The file without a statement.

    Args:
        source: The file.
        node: The statement.

    Returns:
        Content of the whole file; in place of the only statement of a block stands ``pass``.
    """
    tree = _Tree(source)
    block, index = tree.statement(node)
    if len(block.body) == 1 and not isinstance(block, cst.Module):
        return replace_value(source, node, "pass")
    return tree.in_block(block, [*block.body[:index], *block.body[index + 1 :]])


def add_import(source: Source, module: str, name: str = "") -> bytes:
    """The file with one more import.

    Args:
        source: The file.
        module: To import, or to import from.
        name: What to import from it; empty: the module.

    Returns:
        Content of the whole file: the name joins an import from the same module, or there is a new line.
    """
    tree = _Tree(source)
    body = [*tree.module.body]
    if name and (merged := _merged(tree, module, name)) is not None:
        return merged
    line = f"from {module} import {name}" if name else f"import {module}"
    imports = [index for index, one in enumerate(body) if _is_import(one)]
    definitions = (cst.FunctionDef, cst.ClassDef)
    first_definition = next((i for i, one in enumerate(body) if isinstance(one, definitions)), len(body))
    leading = [index for index in imports if index < first_definition]
    same = [index for index in leading if _root(body[index]) == module.partition(".")[0]]
    beside = next((index for index in leading if _root(body[index]) in FRAMEWORKS), None)
    if beside is not None and not name:
        return tree.in_block(tree.module, _inserted(tree.module, beside, line))
    after = (same or leading or [0 if body and _is_docstring(body[0]) else -1])[-1]
    return tree.in_block(tree.module, [*body[: after + 1], cst.parse_statement(line), *body[after + 1 :]])


def _merged(tree: _Tree, module: str, name: str) -> bytes | None:
    """The name added to the first import from the same module, if there is one and none has it."""
    imports = list(_imports_from(tree, module))
    if any(one.evaluated_name == name and one.evaluated_alias in (None, name) for _, names in imports for one in names):
        return tree.module.bytes
    if not imports:
        return None
    found, names = imports[0]
    begin: _Space = found.lpar.whitespace_after if found.lpar is not None else cst.SimpleWhitespace("")
    end: _Space = found.rpar.whitespace_before if found.rpar is not None else cst.SimpleWhitespace("")
    names, end = _joined(names, cst.ImportAlias(cst.Name(name)), begin, end)
    closing = found.rpar.with_changes(whitespace_before=end) if found.rpar is not None else None
    return tree.replaced(found, found.with_changes(names=names, rpar=closing))


def _imports_from(tree: _Tree, module: str) -> Iterator[tuple[cst.ImportFrom, Sequence[cst.ImportAlias]]]:
    """The file's own imports of names from a module, with these names."""
    for one in tree.module.body:
        found = one.body[0] if isinstance(one, cst.SimpleStatementLine) else None
        if not isinstance(found, cst.ImportFrom) or isinstance(found.names, cst.ImportStar) or found.relative:
            continue
        if found.module is not None and tree.module.code_for_node(found.module) == module:
            yield found, found.names


def _is_import(node: cst.CSTNode) -> bool:
    return isinstance(node, cst.SimpleStatementLine) and isinstance(node.body[0], (cst.Import, cst.ImportFrom))


def _is_docstring(node: cst.CSTNode) -> bool:
    return (
        isinstance(node, cst.SimpleStatementLine)
        and isinstance(node.body[0], cst.Expr)
        and isinstance(node.body[0].value, (cst.SimpleString, cst.ConcatenatedString))
    )


def _root(node: cst.CSTNode) -> str:
    """The package that an import is of."""
    line = cst.Module([]).code_for_node(node.body[0]).split() if isinstance(node, cst.SimpleStatementLine) else []
    return next((word.split(".")[0].rstrip(",") for word in line if word not in ("import", "from")), "")
