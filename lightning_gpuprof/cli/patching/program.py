"""Finds the call in the user's source that builds the loader, the Trainer or a callback."""

import ast
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from lightning_gpuprof.cli.patching.pieces import Arguments, NotPlacedError, dotted
from lightning_gpuprof.cli.patching.source import Function, Source, returned, within

Key = int | str | None
"""Which element of a tuple or dict; None: all."""
Seen = set[tuple[int, Key]]

TRAIN, VAL = "train_dataloader", "val_dataloader"
_GIVEN = {TRAIN: (("train_dataloaders", "train_dataloader"), 1), VAL: (("val_dataloaders",), 2)}
"""How ``fit`` takes the loaders of a method: names, and position."""
_SECTIONS = {"model": (("model_class",), 0), "data": (("datamodule_class",), 1)}
"""How LightningCLI takes the class of a section of its YAML."""
_OTHER_LOADERS = ("val", "test", "predict", "eval", "valid")


class Site(NamedTuple):
    """A call and the file that it is in."""

    source: Source
    node: ast.Call

    @property
    def where(self) -> str:
        """For messages."""
        return f"{self.source.path.name}:{self.node.lineno}"


class Program:
    """The files of one program."""

    def __init__(self, sources: Sequence[Source]) -> None:
        self.sources = sources
        self._functions: dict[str, list[tuple[Source, Function]]] = defaultdict(list)
        self._classes: dict[str, list[tuple[Source, ast.ClassDef]]] = defaultdict(list)
        for source in sources:
            for node in ast.walk(source.tree):
                if isinstance(node, Function):
                    self._functions[node.name].append((source, node))
                elif isinstance(node, ast.ClassDef):
                    self._classes[node.name].append((source, node))

    @property
    def names(self) -> str:
        """The files, for messages."""
        shown = [source.path.name for source in self.sources[:3]]
        return ", ".join(shown) + (f" and {len(self.sources) - 3} more files" if len(self.sources) > 3 else "")

    # Calls by name

    def calls(self, name: str) -> list[Site]:
        """All calls of what advice names so."""
        return [Site(s, node) for s in self.sources for node in s.calls if s.is_of(node.func, name)]

    def partials(self, name: str) -> list[Site]:
        """Where ``functools.partial`` calls it later."""
        return [
            Site(source, node)
            for source in self.sources
            for node in source.calls
            if "functools.partial" in source.qualified(node.func) and node.args and source.is_of(node.args[0], name)
        ]

    def command_lines(self) -> list[Site]:
        """Where a LightningCLI is made."""
        own = [
            name
            for name, found in self._classes.items()
            if any(source.is_of(base, "LightningCLI") for source, node in found for base in node.bases)
        ]
        return [site for name in ("LightningCLI", *own) for site in self.calls(name)]

    def the_one(self, piece: Arguments, file: str = "", line: int | None = None) -> Site:
        """The only call that can be meant.

        Args:
            piece: What is called, and what is set.
            file: Where it is, if known.
            line: In ``file`` as it is now.

        Returns:
            The call, with its file.

        Raises:
            NotPlacedError: There is none, or more than one.
        """
        sites = self.calls(piece.call)
        if piece.call == "Trainer":
            fitted = [made for fit in self.fits_of_trainers() for made in self.made_by(_owner(fit.node), fit.source)]
            sites = [site for site in sites if site in fitted] or sites
        return self._only(sites, piece, file, line)

    def loader(
        self,
        piece: Arguments,
        *,
        role: str = TRAIN,
        classes: Mapping[str, str] | None = None,
        file: str = "",
        line: int | None = None,
    ) -> Site:
        """The call that builds the loader of the training, or of the validation.

        Args:
            piece: As for :meth:`the_one`.
            role: :data:`TRAIN` or :data:`VAL`.
            classes: By section of a configuration, the name of its class, where it names one.
            file: As for :meth:`the_one`.
            line: As for :meth:`the_one`.

        Returns:
            The call, with its file.

        Raises:
            NotPlacedError: There is none, or more than one.
        """
        name, classes = piece.call, classes or {}
        sites = self._loaders(name, role, classes)
        if not sites and (absent := self._absent(classes)):
            raise NotPlacedError(f"{absent}, which the configuration names, is in none of {self.names}")
        if not sites and role == TRAIN:
            others = set(self._loaders(name, VAL, classes))
            sites = [site for site in self.calls(name) if site not in others and not _of_other_stage(site)]
        if not sites and self.calls(name):
            stage = "training" if role == TRAIN else "validation"
            raise NotPlacedError(f"none of the {name}(...) in {self.names} is known to be that of the {stage}")
        site = self._only(sites, piece, file, line)
        for keyword in site.node.keywords:
            code, key = ast.unparse(keyword.value), keyword.arg or ""
            run, wanted = piece.before.get(key, code), piece.values.get(key)
            if code.isdigit() and run.isdigit() and code not in (run, wanted):
                raise NotPlacedError(
                    f"{site.where} has {key}={code} and the run had {run}: it is another one, or changed"
                )
        if role == VAL and site in self._loaders(name, TRAIN, classes):
            raise NotPlacedError(f"{site.where} builds the loader of the training, too")
        return site

    def _only(self, sites: Sequence[Site], piece: Arguments, file: str, line: int | None) -> Site:
        name, before, wanted = piece.call, piece.before, piece.values
        if file:
            sites = [site for site in sites if is_same_file(site.source.path, file)] or sites
        if file and line is not None:
            on_line = [s for s in sites if s.node.lineno <= line <= (s.node.end_lineno or line)]
            sites = on_line if len(on_line) == 1 else sites
        if len(sites) > 1:
            sites = [site for site in sites if not _contradicts(site.node, before, wanted)] or sites
        if len(sites) == 1:
            return sites[0]
        if sites:
            raise NotPlacedError(f"{listed(sites)} each have a {name}(...): change the one that is meant")
        partials = self.partials(name)
        if partials:
            raise NotPlacedError(f"{partials[0].where} builds {name} by functools.partial")
        raise NotPlacedError(f"there is no {name}(...) in {self.names}: it is built elsewhere")

    # The training loader

    def fits(self) -> Iterator[Site]:
        """All calls of a method ``fit``."""
        for source in self.sources:
            for node in source.calls:
                if isinstance(node.func, ast.Attribute) and node.func.attr == "fit":
                    yield Site(source, node)

    def fits_of_trainers(self) -> list[Site]:
        """Calls of a Trainer's ``fit``, else of that of something that is named so."""
        trainers = self.calls("Trainer")
        fits = list(self.fits())
        sure = [fit for fit in fits if any(made in trainers for made in self.made_by(_owner(fit.node), fit.source))]
        return sure or [fit for fit in fits if dotted(_owner(fit.node)).lower().endswith("trainer")]

    def made_by(self, node: ast.expr, source: Source) -> list[Site]:
        """The calls that make a value.

        Args:
            node: An expression.
            source: Its file.

        Returns:
            Each with its file; calls of the user's own functions are followed to what those return. Empty: not known.
        """
        return list(self._values(node, source))

    def _loaders(self, name: str, role: str, classes: Mapping[str, str]) -> list[Site]:
        names, position = _GIVEN[role]
        found: list[Site] = []
        for source, fit in self.fits():
            given = _argument(fit, names, position)
            found += self._loaders_in(name, role, given, source) if given is not None else ()
        owners = [] if found else self._owners(classes)
        for owner in owners:
            found += self._loaders_of(name, role, owner)
        if not found and not owners and not self._absent(classes):
            for source, method in self._functions.get(role, ()):
                found += self._loaders_from(name, role, source, method)
        return list(dict.fromkeys(found))

    def _absent(self, classes: Mapping[str, str]) -> str:
        """A class of a configuration that none of the files has."""
        return next((name for name in classes.values() if name and name not in self._classes), "")

    def _owners(self, classes: Mapping[str, str]) -> list[ast.ClassDef]:
        """The classes of models and data that are trained."""
        found = []
        for source, fit in self.fits():
            for given in (*fit.args[:2], *(k.value for k in fit.keywords if k.arg in ("model", "datamodule"))):
                for site in self._values(given, source):
                    found += self._classes_of(site)
        for section in _SECTIONS:
            for name in [classes[section]] if classes.get(section) else self.cli_classes(section):
                found += [node for _, node in self._classes.get(name, ())]
        return found

    def cli_classes(self, section: str) -> list[str]:
        """The classes that a LightningCLI is made with, of ``model`` or of ``data``."""
        names, position = _SECTIONS[section]
        given = (_argument(site.node, names, position) for site in self.command_lines())
        return [dotted(one).rpartition(".")[2] for one in given if one is not None]

    def _classes_of(self, site: Site) -> list[ast.ClassDef]:
        return [node for _, node in self._classes.get(dotted(site.node.func).rpartition(".")[2], ())]

    def bases(self, name: str) -> Iterator[tuple[Source, ast.ClassDef]]:
        """A class and those that it inherits from, as far as the files have them."""
        waiting, seen = [name], set[str]()
        while waiting:
            name = waiting.pop(0)
            if name in seen:
                continue
            seen.add(name)
            for source, node in self._classes.get(name, ()):
                yield source, node
                waiting += [dotted(base).rpartition(".")[2] for base in node.bases]

    def _loaders_of(self, name: str, role: str, owner: ast.ClassDef) -> Iterator[Site]:
        for source, node in self.bases(owner.name):
            for method in node.body:
                if isinstance(method, Function) and method.name == role:
                    yield from self._loaders_from(name, role, source, method)
                    return

    def _loaders_from(self, name: str, role: str, source: Source, method: Function) -> list[Site]:
        found = [site for value in returned(method) for site in self._loaders_in(name, role, value, source)]
        inside = set(ast.walk(method))
        return found or [site for site in self.calls(name) if site.node in inside]

    def _loaders_in(self, name: str, role: str, node: ast.expr, source: Source) -> Iterator[Site]:
        for site in self._values(node, source):
            if site.source.is_of(site.node.func, name):
                yield site
            elif owners := self._classes_of(site):
                for owner in owners:
                    yield from self._loaders_of(name, role, owner)
            else:  # something that wraps a loader
                for argument in (*site.node.args, *(keyword.value for keyword in site.node.keywords)):
                    yield from self._loaders_in(name, role, argument, site.source)

    # Where a value comes from

    def _values(self, node: ast.expr, source: Source, key: Key = None, seen: Seen | None = None) -> Iterator[Site]:
        """The calls that make a value: those of functions of the user's are followed into them."""
        seen = set() if seen is None else seen
        if (id(node), key) in seen:
            return
        seen.add((id(node), key))
        if isinstance(node, ast.Call):
            functions = self._callees(node, source)
            if not functions:
                yield Site(source, node)
            for other, function in functions:
                for value in returned(function):
                    yield from self._values(value, other, key, seen)
        elif isinstance(node, (ast.Name, ast.Attribute)):
            for other, value, part in self._assigned(node, source, key):
                yield from self._values(value, other, part, seen)
        elif isinstance(node, ast.Subscript):
            chosen = node.slice.value if isinstance(node.slice, ast.Constant) else None
            yield from self._values(node.value, source, chosen if isinstance(chosen, (int, str)) else None, seen)
        else:
            for inner in _parts(node, key):
                yield from self._values(inner, source, None, seen)

    def _callees(self, node: ast.Call, source: Source) -> list[tuple[Source, Function]]:
        if isinstance(node.func, ast.Name):
            full = {name.rpartition(".")[2] for name in source.qualified(node.func)}
            found = [one for name in full for one in self._functions.get(name, ()) if one[0].class_of(one[1]) is None]
            return [one for one in found if one[0] is source] or found
        if not isinstance(node.func, ast.Attribute):
            return []
        found = self._functions.get(node.func.attr, [])
        owners = [owner] if (owner := source.class_of(node)) and dotted(node.func.value) in ("self", "cls") else []
        if found and not owners:
            owners = [one for site in self._values(node.func.value, source) for one in self._classes_of(site)]
        for _, base in (base for owner in owners for base in self.bases(owner.name)):
            if own := [one for one in found if one[1] in base.body]:
                return own
        return found

    def _assigned(self, node: ast.Name | ast.Attribute, source: Source, key: Key) -> list[tuple[Source, ast.expr, Key]]:
        if isinstance(node, ast.Attribute):
            owner = source.class_of(node) if dotted(node.value) == "self" else None
            bases = list(self.bases(owner.name)) if owner is not None else []
            return [
                (s, value, part)
                for s, base in bases
                for child in ast.walk(base)
                for value, part in bound(child, dotted(node), key)
            ]
        for scope in (*source.scopes(node), source.tree):
            found = [one for child in within(scope) for one in bound(child, node.id, key)]
            earlier = [one for one in found if one[0].lineno <= node.lineno]
            if found:
                return [(source, value, part) for value, part in earlier or found]
            if isinstance(scope, Function) and node.id in parameters(scope):
                return [(s, value, key) for s, value in self._passed(scope, node.id)]
        return [
            (other, value, part)
            for name in source.qualified(node)
            for other in self.sources
            if other is not source and other.path.stem in name.split(".")
            for child in other.tree.body
            for value, part in bound(child, name.rpartition(".")[2], key)
        ]

    def _passed(self, function: Function, name: str) -> Iterator[tuple[Source, ast.expr]]:
        """What callers pass as a parameter."""
        names = parameters(function)
        for source in self.sources:
            for node in source.calls:
                if dotted(node.func).rpartition(".")[2] == function.name:
                    position = names.index(name) - (names[:1] == ["self"])
                    given = _argument(node, (name,), position)
                    if given is not None:
                        yield source, given


def _parts(node: ast.expr, key: Key) -> Iterable[ast.expr]:
    """The expressions whose value a compound expression may have or hold."""
    if isinstance(node, (ast.Tuple, ast.List)):
        return node.elts[key : key + 1] if isinstance(key, int) and key >= 0 else node.elts
    if isinstance(node, ast.Dict):
        keys = [one.value if isinstance(one, ast.Constant) else None for one in node.keys]
        return [v for k, v in zip(keys, node.values, strict=True) if key is None or k in (key, None)]
    if isinstance(node, ast.IfExp):
        return (node.body, node.orelse)
    if isinstance(node, ast.BoolOp):
        return node.values
    if isinstance(node, (ast.ListComp, ast.GeneratorExp)):
        return (node.elt,)
    if isinstance(node, (ast.DictComp, ast.Starred, ast.Await, ast.NamedExpr)):
        return (node.value,)
    return ()


def bound(node: ast.AST, name: str, key: Key) -> Iterator[tuple[ast.expr, Key]]:
    """What a statement assigns to a name, and which part of it.

    Args:
        node: Any node.
        name: Dotted.
        key: The part of the name's value that is asked for.

    Yields:
        An expression, and the part of it that is asked for, None for all. Nothing if the node does not bind the name.
    """
    if isinstance(node, (ast.AnnAssign, ast.NamedExpr)) and node.value is not None and dotted(node.target) == name:
        yield node.value, key
    if not isinstance(node, ast.Assign):
        return
    for target in node.targets:
        if dotted(target) == name:
            yield node.value, key
        elif isinstance(target, (ast.Tuple, ast.List)):
            values = _each_value(node.value, target)
            for index, one in enumerate(target.elts):
                if dotted(one) == name:
                    yield (values[index], key) if values else (node.value, index)
        elif isinstance(target, ast.Subscript) and dotted(target.value) == name:
            own = target.slice.value if isinstance(target.slice, ast.Constant) else None
            if key in (None, own):
                yield node.value, None


def _each_value(value: ast.expr, target: ast.Tuple | ast.List) -> list[ast.expr]:
    """The values of ``a, b = 1, 2``, one for each target; empty where they are not written one by one."""
    if not isinstance(value, (ast.Tuple, ast.List)) or len(value.elts) != len(target.elts):
        return []
    return [] if any(isinstance(one, ast.Starred) for one in (*value.elts, *target.elts)) else value.elts


def parameters(function: Function) -> list[str]:
    """The names of a function's parameters, by position first."""
    given = function.args
    return [one.arg for one in (*given.posonlyargs, *given.args, *given.kwonlyargs)]


def listed(sites: Sequence[Site]) -> str:
    """Their places, for messages."""
    shown = [site.where for site in sites[:3]] + ([f"{len(sites) - 3} more"] if len(sites) > 3 else [])
    return f"{', '.join(shown[:-1])} and {shown[-1]}"


def _argument(call: ast.Call, names: Sequence[str], position: int) -> ast.expr | None:
    named = next((keyword.value for keyword in call.keywords if keyword.arg in names), None)
    if named is not None or any(isinstance(one, ast.Starred) for one in call.args):
        return named
    return call.args[position] if 0 <= position < len(call.args) else None


def _owner(call: ast.Call) -> ast.expr:
    """What a method is called on."""
    return call.func.value if isinstance(call.func, ast.Attribute) else call.func


def _contradicts(call: ast.Call, before: Mapping[str, str], wanted: Mapping[str, str]) -> bool:
    """Whether a literal in a call is another than the run had, and than it is to be."""
    literals = {k.arg: ast.unparse(k.value) for k in call.keywords if k.arg and isinstance(k.value, ast.Constant)}
    run = {name: {_as_unparsed(code), _as_unparsed(wanted.get(name, code))} for name, code in before.items()}
    return any(literals[name] not in codes for name, codes in run.items() if name in literals)


def _as_unparsed(code: str) -> str:
    return ast.unparse(ast.parse(code, mode="eval"))


def _of_other_stage(site: Site) -> bool:
    around = [scope.name.lower() for scope in site.source.scopes(site.node) if isinstance(scope, Function)]
    return any(word in name for name in around for word in _OTHER_LOADERS)


def is_same_file(path: Path, file: str) -> bool:
    """Whether a file is the one that a report names; reports shorten paths from the left.

    Args:
        path: On this machine.
        file: In a change.
    """
    wanted = Path(file.lstrip("…./") if file.startswith(("…", "...")) else file)
    return path.resolve() == wanted.resolve() or path.resolve().parts[-len(wanted.parts) :] == wanted.parts
