"""Puts each piece of a change where it belongs in a program's files."""

import ast
import difflib
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from lightning_gpuprof.cli.patching import program as programs
from lightning_gpuprof.cli.patching.configuration import Configuration
from lightning_gpuprof.cli.patching.pieces import (
    Arguments,
    Compiled,
    LeftOut,
    NotPlacedError,
    Piece,
    Removed,
    Statement,
    dotted,
    setting,
    statement,
)
from lightning_gpuprof.cli.patching.program import TRAIN, VAL, Program, Site, bound, listed, parameters
from lightning_gpuprof.cli.patching.source import Function, Source, parse, within
from lightning_gpuprof.model.change import Change
from lightning_gpuprof.model.journal import Value

_LIGHTNING = "lightning.pytorch"
_MADE_BY_TRAINER = ("TQDMProgressBar", "RichProgressBar", "ModelCheckpoint")
"""Callbacks that need not be in the code."""
_SWITCHES = {
    "ModelSummary": "enable_model_summary",
    "RichModelSummary": "enable_model_summary",
    "RichProgressBar": "enable_progress_bar",
    "TQDMProgressBar": "enable_progress_bar",
}
"""A callback that the Trainer makes again where it is left out -> its argument that does without."""
_OBJECTS = ("strategy", "worker_init_fn", "train_time_interval", "ddp_comm_hook")
"""Arguments whose value may be an object of the user's, which is not replaced."""
_EITHER = (
    frozenset(("every_n_train_steps", "every_n_epochs", "train_time_interval")),
    frozenset(("batch_size", "batch_sampler")),
    frozenset(("shuffle", "batch_sampler")),
    frozenset(("drop_last", "batch_sampler")),
)
"""Arguments that exclude each other."""
_IMPORTS = {
    "torch": ("torch", ""),
    "timedelta": ("datetime", "timedelta"),
    "DDPStrategy": ("{lightning}.strategies", "DDPStrategy"),
    "default_hooks": ("torch.distributed.algorithms.ddp_comm_hooks", "default_hooks"),
}
"""Names in advice -> where they come from."""


class Draft:
    """Files that change.

    Args:
        sources: Path -> content.
        config: A YAML of LightningCLI.
        config_text: What is in it.
    """

    def __init__(self, sources: Mapping[Path, bytes], config: Path | None, config_text: str) -> None:
        self.contents = dict(sources)
        self._first = dict(sources)
        self.config = None if config is None else Configuration(config, config_text)
        self._parsed: dict[Path, Source] = {}
        self._settled: dict[tuple[object, ...], str] = {}

    @property
    def program(self) -> Program:
        """The sources as they are now."""
        for path, content in self.contents.items():
            known = self._parsed.get(path)
            if known is None or known.content != content:
                self._parsed[path] = parse(path, content)
        return Program([self._parsed[path] for path in self.contents])

    def place(self, piece: Piece, change: Change) -> None:
        """Put a piece where it belongs.

        Args:
            piece: Of the change.
            change: Says where, if that is known.

        Raises:
            NotPlacedError: There is no place, or more than one; the files are as before.
        """
        before = dict(self.contents), self.config, dict(self._settled)
        try:
            if isinstance(piece, Arguments):
                self._arguments(piece, change)
            elif isinstance(piece, LeftOut):
                self._left_out(piece)
            elif isinstance(piece, Statement):
                self._statement(piece)
            elif isinstance(piece, Compiled):
                self._compiled(piece)
            elif isinstance(piece, Removed):
                self._removed(piece, change)
            else:
                raise NotPlacedError(piece.why)
            for path, content in self.contents.items():
                if content != before[0][path]:
                    ast.parse(content)
        except NotPlacedError:
            self.contents, self.config, self._settled = before
            raise
        except (SyntaxError, ValueError) as error:  # what libcst wrote is not Python: nothing of it is kept
            self.contents, self.config, self._settled = before
            raise NotPlacedError(f"the edit would not be valid Python ({error})") from error

    # Arguments

    def _arguments(self, piece: Arguments, change: Change) -> None:
        if piece.call == "Trainer" and self.config is not None:
            self._in_yaml((*self.config.top, "trainer"), piece.values)
            return
        if self.config is not None and (paths := self.config.classes(piece.call)):
            if len(paths) > 1:
                raise NotPlacedError(
                    f"{self.config.path.name} has {len(paths)} {piece.call}: change the one that is meant"
                )
            self._in_yaml((*paths[0], "init_args"), piece.values)
            return
        if piece.call in _MADE_BY_TRAINER and not self.program.calls(piece.call):
            self._add_callback(piece)
            return
        try:
            site = self._site(piece, change)
        except NotPlacedError:
            if self._all_in_data(piece):
                return
            raise
        code = self._with_consequences(site, piece)
        for name, value in list(code.items()):
            if (path := self._parameter(site, name)) is not None:
                self._in_yaml(path[:-1], {path[-1]: value})
                del code[name]
        self._in_call(site, piece.call, code)

    def _site(self, piece: Arguments, change: Change) -> Site:
        line = self._line_now(change)
        if piece.call.rpartition(".")[2].endswith("DataLoader"):
            role = VAL if change.inside == VAL else TRAIN
            classes = {} if self.config is None else {s: self.config.class_name(s) for s in ("model", "data")}
            return self.program.loader(piece, role=role, classes=classes, file=change.file, line=line)
        try:
            return self.program.the_one(piece, change.file, line)
        except NotPlacedError:
            if piece.call == "Trainer" and self.program.command_lines():
                raise NotPlacedError("LightningCLI builds the Trainer: set it below `trainer` in its YAML") from None
            raise

    def _line_now(self, change: Change) -> int | None:
        """Where a line of the run is after the edits so far."""
        if change.line is None:
            return None
        for path, content in self.contents.items():
            if programs.is_same_file(path, change.file) and content != self._first[path]:
                old, new = (one.splitlines() for one in (self._first[path], content))
                for tag, i1, i2, j1, _ in difflib.SequenceMatcher(None, old, new, autojunk=False).get_opcodes():
                    if i1 <= change.line - 1 < i2:
                        return j1 + (change.line - 1 - i1 if tag == "equal" else 0) + 1
        return change.line

    def _with_consequences(self, site: Site, piece: Arguments) -> dict[str, str]:
        """The values, with those that must change with them; an argument that excludes them is in the way."""
        values = dict(piece.values)
        given = {keyword.arg: keyword.value for keyword in site.node.keywords if keyword.arg is not None}
        if values.get("num_workers") == "0":
            without = {"persistent_workers": "False", "prefetch_factor": "None"}
            values |= {name: code for name, code in without.items() if name in given}
        for name in values:
            for other in (one for group in _EITHER if name in group for one in group - {name}):
                if other in given and other not in values and ast.unparse(given[other]) != "None":
                    raise NotPlacedError(f"{site.where} sets {other}, which excludes {name}")
            old = given.get(name)
            same = old is not None and ast.unparse(old) == ast.unparse(ast.parse(values[name], mode="eval"))
            if name in _OBJECTS and old is not None and not same and not isinstance(old, ast.Constant):
                raise NotPlacedError(f"{site.where} has its own {name}: {' '.join(ast.unparse(old).split())}")
        return values

    def _in_call(self, site: Site, name: str, values: Mapping[str, str]) -> None:
        from lightning_gpuprof.cli.patching import syntax  # libcst: an extra

        path = site.source.path
        for key, code in values.items():
            self._settle((path, name, site.node.lineno if name != "Trainer" else 0, key), code)
        needed: list[tuple[str, str]] = []
        written = {key: self._with_names(code, site, needed) for key, code in values.items()}
        self.contents[path] = syntax.set_arguments(site.source, site.node, name, written)
        self._import(path, needed)

    def _settle(self, key: tuple[object, ...], code: str) -> None:
        """Note what an argument is now; advice that comes first counts."""
        earlier = self._settled.setdefault(key, code)
        if earlier != code:
            raise NotPlacedError(f"earlier advice sets {key[-1]}={earlier}")

    def _with_names(self, code: str, site: Site, needed: list[tuple[str, str]]) -> str:
        """Code with the names that its file has for what it uses; what has to be imported is added to ``needed``."""
        for name in dict.fromkeys(_free_names(code)):
            if name not in _IMPORTS:
                raise NotPlacedError(f"where {name} comes from is not known")
            module, member = _IMPORTS[name]
            module = module.format(lightning=self._lightning(site))
            local = site.source.local_name(f"{module}.{member}" if member else module, site.node)
            if local is None:
                needed.append((module, member))
            elif local != name:
                code = re.sub(rf"(?<![\w.]){name}\b", local, code)
        return code

    def _import(self, path: Path, needed: Iterable[tuple[str, str]]) -> None:
        from lightning_gpuprof.cli.patching import syntax

        for module, member in needed:
            self.contents[path] = syntax.add_import(parse(path, self.contents[path]), module, member)

    def _lightning(self, site: Site) -> str:
        """The package whose classes a file uses."""
        names = site.source.qualified(site.node.func)
        return "pytorch_lightning" if any(name.startswith("pytorch_lightning") for name in names) else _LIGHTNING

    # YAML

    def _in_yaml(self, path: Sequence[str | int], values: Mapping[str, str]) -> None:
        assert self.config is not None
        for name, code in values.items():
            self._settle((self.config.path, *path, name), code)
            self.config = self.config.set((*path, name), self._literal(code))

    def _literal(self, code: str) -> Value:
        try:
            value = ast.literal_eval(code)
        except ValueError:
            raise NotPlacedError(f"{code} is code, which the YAML cannot have") from None
        if value is not None and not isinstance(value, (str, int, float, bool)):
            raise NotPlacedError(f"{code} is not a single value")
        return value

    def _all_in_data(self, piece: Arguments) -> bool:
        """Set them in the YAML where its data section has them all, though its class is not in the sources."""
        path = None if self.config is None else self.config.arguments_of("data")
        if path is None or self.config is None or piece.call != "DataLoader":
            return False
        if any(self.config.node((*path, name)) is None for name in piece.values):
            return False
        self._in_yaml(path, piece.values)
        return True

    def _parameter(self, site: Site, name: str) -> tuple[str, ...] | None:
        """Where in the YAML the value of an argument comes from: a parameter of the class around the call."""
        owner = site.source.class_of(site.node)
        value = next((keyword.value for keyword in site.node.keywords if keyword.arg == name), None)
        if self.config is None or owner is None or value is None:
            return None
        parameter = self._parameter_of(value, site, owner)
        for section in ("data", "model"):
            if parameter is None or owner not in self._section_classes(section):
                continue
            path = self.config.arguments_of(section)
            if path is None and self.config.node((*self.config.top, section)) is None:
                path = (*self.config.top, section)
            if path is not None:
                return (*path, parameter)
        return None

    def _section_classes(self, section: str) -> list[ast.ClassDef]:
        """The class that a section of the YAML sets up, and its bases."""
        assert self.config is not None
        program = self.program
        names = [self.config.class_name(section)] if self.config.class_name(section) else program.cli_classes(section)
        return [node for name in names for _, node in program.bases(name)]

    def _parameter_of(self, value: ast.expr, site: Site, owner: ast.ClassDef) -> str | None:
        init = next((one for one in owner.body if isinstance(one, Function) and one.name == "__init__"), None)
        if init is None:
            return None
        names = parameters(init)[1:]
        saves = any(
            isinstance(node, ast.Call) and dotted(node.func) == "self.save_hyperparameters" and not node.args
            for node in within(init)
        )
        if isinstance(value, ast.Subscript) and isinstance(value.slice, ast.Constant):
            name = str(value.slice.value) if dotted(value.value) == "self.hparams" else ""
            return name if saves and name in names else None
        word = dotted(value)
        if word.startswith("self.hparams."):
            name = word.removeprefix("self.hparams.")
            return name if saves and name in names else None
        if isinstance(value, ast.Name):
            return word if word in names and next(site.source.scopes(site.node), None) is init else None
        given = [one for node in ast.walk(owner) for one, _ in bound(node, word, None)] if word else []
        only = dotted(given[0]) if len(given) == 1 else ""
        return only if only in names else None

    # Callbacks

    def _add_callback(self, piece: Arguments) -> None:
        """Put a callback into the Trainer that so far made its own."""
        if self.config is not None:
            for name, code in piece.values.items():
                self._settle((piece.call, name), code)
            literals = {name: self._literal(code) for name, code in piece.values.items()}
            self.config = self.config.add_callback(f"{_LIGHTNING}.callbacks.{piece.call}", literals)
            return
        from lightning_gpuprof.cli.patching import syntax

        trainer = self._site(Arguments(call="Trainer", values={}), Change(call="Trainer"))
        module, path = f"{self._lightning(trainer)}.callbacks", trainer.source.path
        given = next((one.value for one in trainer.node.keywords if one.arg == "callbacks"), None)
        found = None if given is None else self._list(trainer, given)
        local = trainer.source.local_name(f"{module}.{piece.call}", trainer.node)
        needed = [] if local else [(module, piece.call)]
        values = [f"{name}={self._with_names(value, trainer, needed)}" for name, value in piece.values.items()]
        item = f"{local or piece.call}({', '.join(values)})"
        if given is None or ast.unparse(given) == "None":
            self.contents[path] = syntax.set_arguments(
                trainer.source, trainer.node, "Trainer", {"callbacks": f"[{item}]"}
            )
        elif found is not None:
            self.contents[path] = syntax.append_item(trainer.source, found, item)
        else:
            raise NotPlacedError(f"{trainer.where} gets its callbacks from elsewhere: {ast.unparse(given)}")
        self._import(path, needed)

    def _list(self, site: Site, node: ast.expr) -> ast.List | None:
        """The list that an expression is, or that its name is bound to once."""
        if isinstance(node, ast.List):
            return node
        if not isinstance(node, ast.Name):
            return None
        scope = next(site.source.scopes(site.node), site.source.tree)
        found = [value for child in within(scope) for value, _ in bound(child, node.id, None)]
        return found[0] if len(found) == 1 and isinstance(found[0], ast.List) else None

    def _left_out(self, piece: LeftOut) -> None:
        if self.config is not None and (paths := self.config.classes(piece.call)):
            *owner, index = paths[0]
            if len(paths) > 1 or not isinstance(index, int):
                raise NotPlacedError(
                    f"{self.config.path.name} has {piece.call} in more than one place, or not in a list"
                )
            self.config = self.config.remove_item(owner, index)
            self._switch_off(piece)
            return
        sites = self.program.calls(piece.call)
        if len(sites) != 1 and (sites or piece.call not in _SWITCHES):
            where = f"{listed(sites)} each make one" if sites else f"there is none in {self.program.names}"
            raise NotPlacedError(f"{where}: leave {piece.call} out where the callbacks are made")
        for site in sites:
            self._remove_callback(site)
        self._switch_off(piece)

    def _switch_off(self, piece: LeftOut) -> None:
        """Keep the Trainer from making it again."""
        if piece.call in _SWITCHES:
            self._arguments(Arguments(call="Trainer", values={_SWITCHES[piece.call]: "False"}), Change(call="Trainer"))

    def _remove_callback(self, site: Site) -> None:
        from lightning_gpuprof.cli.patching import syntax

        source, path = site.source, site.source.path
        parent = source.parents[site.node]
        if isinstance(parent, ast.List):
            self.contents[path] = syntax.remove_item(source, parent, parent.elts.index(site.node))
        elif isinstance(parent, ast.keyword) and parent.arg == "callbacks":
            call = source.parents[parent]
            assert isinstance(call, ast.Call)
            self.contents[path] = syntax.set_arguments(source, call, dotted(call.func), {"callbacks": "[]"})
        elif isinstance(parent, ast.Call) and isinstance(parent.func, ast.Attribute) and parent.func.attr == "append":
            self.contents[path] = syntax.remove_statement(source, source.statement_of(parent))
        elif isinstance(parent, ast.Assign) and isinstance(parent.targets[0], ast.Name):
            name = parent.targets[0].id
            names = [node for node in ast.walk(source.tree) if isinstance(node, ast.Name) and node.id == name]
            uses = [node for node in names if isinstance(node.ctx, ast.Load)]
            owner = source.parents[uses[0]] if len(uses) == 1 else None
            if not isinstance(owner, ast.List):
                raise NotPlacedError(
                    f"{site.where} makes it as {name}, which is used in more than one list or elsewhere"
                )
            self.contents[path] = syntax.remove_item(source, owner, owner.elts.index(uses[0]))
            now = parse(path, self.contents[path])
            same = next(n for n in ast.walk(now.tree) if isinstance(n, ast.Assign) and ast.dump(n) == ast.dump(parent))
            self.contents[path] = syntax.remove_statement(now, same)
        else:
            raise NotPlacedError(f"{site.where} makes it in a way that is not edited")

    # Lines

    def _statement(self, piece: Statement) -> None:
        from lightning_gpuprof.cli.patching import syntax

        new = statement(piece.line)
        assert new is not None
        name = setting(new)
        found = [
            (source, node)
            for source in self.program.sources
            for node in ast.walk(source.tree)
            if isinstance(node, (ast.Expr, ast.Assign)) and self._sets(source, node, name)
        ]
        if all(_is_global(source, node) and _value(node) == _value(new) for source, node in found) and found:
            return
        if len(found) > 1:
            raise NotPlacedError(f"{name} is set in {' and '.join(f'{s.path.name}:{n.lineno}' for s, n in found[:3])}")
        if found:
            source, old = found[0]
            if self._in_yaml_instead(source, old, new):
                return
            if not _is_global(source, old):
                raise NotPlacedError(f"{source.path.name}:{old.lineno} sets it under a condition: set it there")
            line = piece.line.replace(name, setting(old), 1)
            self.contents[source.path] = syntax.replace_value(source, old, line)
            return
        site = self._start()
        needed: list[tuple[str, str]] = []
        line = self._with_names(piece.line, site, needed)
        self._settle((name,), piece.line)
        self.contents[site.source.path] = syntax.insert_before(site.source, site.source.statement_of(site.node), line)
        self._import(site.source.path, needed)

    def _sets(self, source: Source, node: ast.Expr | ast.Assign, name: str) -> bool:
        target = node.value.func if isinstance(node, ast.Expr) and isinstance(node.value, ast.Call) else None
        target = node.targets[0] if isinstance(node, ast.Assign) else target
        if target is None or name not in source.qualified(target):
            return False
        inits = {dotted(one.value) for call in source.calls for one in call.keywords if one.arg == "worker_init_fn"}
        return not any(isinstance(one, Function) and one.name in inits for one in source.outer(node))

    def _in_yaml_instead(self, source: Source, old: ast.stmt, new: ast.stmt) -> bool:
        """Whether what is set is a parameter that the YAML has, and is now set there."""
        owner = source.class_of(old)
        if self.config is None or owner is None or len(_value(old)) != 1:
            return False
        call = old.value if isinstance(old, ast.Expr) else None
        if not isinstance(call, ast.Call) or not call.args:
            return False
        parameter = self._parameter_of(call.args[0], Site(source, call), owner)
        for section in ("model", "data"):
            path = self.config.arguments_of(section)
            if parameter and path is not None and owner in self._section_classes(section):
                self._in_yaml(path, {parameter: _value(new)[0]})
                return True
        return False

    def _start(self) -> Site:
        """Where the Trainer is built, before which settings of the process stand."""
        command_lines = self.program.command_lines()
        if len(command_lines) == 1 and not self.program.calls("Trainer"):
            return command_lines[0]
        return self.program.the_one(Arguments(call="Trainer", values={}))

    def _compiled(self, piece: Compiled) -> None:
        from lightning_gpuprof.cli.patching import syntax

        program = self.program
        new = statement(piece.line)
        assert isinstance(new, ast.Assign)
        assert isinstance(new.value, ast.Call)
        fits = program.fits_of_trainers()
        if len(fits) != 1:
            where = f"{listed(fits)} each fit a model" if fits else f"there is no trainer.fit(...) in {program.names}"
            raise NotPlacedError(f"{where}: compile it where it is made")
        (fit,) = fits
        source, path = fit.source, fit.source.path
        model = next((one.value for one in fit.node.keywords if one.arg == "model"), None) or next(
            iter(fit.node.args), None
        )
        if model is None or isinstance(model, ast.Starred):
            raise NotPlacedError(f"{fit.where} fits a model that is not named")
        existing = program.calls("torch.compile")
        if existing:
            same = [site for site in existing if _options(site.node) == _options(new.value)]
            if same and any(site in program.made_by(model, source) or site.node is model for site in existing):
                return
            raise NotPlacedError(f"{existing[0].where} compiles already: change its arguments")
        needed: list[tuple[str, str]] = []
        function = self._with_names("torch", fit, needed)
        options = "".join(f", {option}" for option in _options(new.value))
        line = f"{dotted(model)} = {function}.compile({dotted(model)}{options})"
        at = source.statement_of(fit.node)
        if isinstance(model, ast.Name) and _is_local(source, fit.node, model.id):
            self.contents[path] = syntax.insert_before(source, at, line)
        else:
            self.contents[path] = syntax.wrap_argument(source, fit.node, model, f"{function}.compile", options)
        self._import(path, needed)

    def _removed(self, piece: Removed, change: Change) -> None:
        from lightning_gpuprof.cli.patching import syntax

        wanted = statement(piece.line)
        assert wanted is not None
        found = [
            (source, node)
            for source in self.program.sources
            for node in ast.walk(source.tree)
            if isinstance(node, ast.Expr) and ast.dump(node) == ast.dump(wanted)
        ]
        line = self._line_now(change)
        if change.file:
            found = [one for one in found if programs.is_same_file(one[0].path, change.file)]
            found = [one for one in found if line in (None, one[1].lineno)] or found
        if len(found) != 1:
            places = " and ".join(f"{source.path.name}:{node.lineno}" for source, node in found[:3])
            raise NotPlacedError(f"{places} each have it" if found else f"it is not in {self.program.names}")
        source, node = found[0]
        self.contents[source.path] = syntax.remove_statement(source, node)


def _free_names(code: str) -> list[str]:
    tree = ast.parse(code)
    own = {one.arg for one in ast.walk(tree) if isinstance(one, ast.arg)}
    return [one.id for one in ast.walk(tree) if isinstance(one, ast.Name) and one.id not in own]


def _value(node: ast.stmt) -> list[str]:
    """What a statement sets: the arguments of its call, or the right side."""
    if isinstance(node, ast.Expr) and isinstance(node.value, ast.Call):
        return [ast.unparse(one) for one in (*node.value.args, *node.value.keywords)]
    return [ast.unparse(node.value)] if isinstance(node, ast.Assign) else []


def _is_global(source: Source, node: ast.stmt) -> bool:
    """Whether a statement is reached in every run: under no condition, loop or ``try``."""
    around = [one for one in source.outer(node) if isinstance(one, ast.stmt)]
    return all(isinstance(one, (Function, ast.ClassDef, ast.With)) or _is_main(one) for one in around)


def _is_main(node: ast.stmt) -> bool:
    return isinstance(node, ast.If) and "__name__" in ast.dump(node.test)


def _options(call: ast.Call) -> list[str]:
    return [ast.unparse(keyword) for keyword in call.keywords]


def _is_local(source: Source, at: ast.AST, name: str) -> bool:
    """Whether a name can be bound again where it is used: elsewhere it would hide the one of the module."""
    scope = next(source.scopes(at), None)
    if scope is None:
        return True
    if not isinstance(scope, Function):
        return False
    return name in parameters(scope) or any(True for child in within(scope) for _ in bound(child, name, None))
