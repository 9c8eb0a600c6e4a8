"""YAML with places: what a settings file says as plain values, and where each of them stands.

Owns reading (YAML 1.2), anchors and merge keys, `${VARIABLE}`, and how a problem is told. Must not know what any key
means, but for the names of those whose values are secrets.
"""

import difflib
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from ruamel.yaml import YAML
from ruamel.yaml.error import MarkedYAMLError, YAMLError
from ruamel.yaml.nodes import MappingNode, Node, ScalarNode, SequenceNode
from ruamel.yaml.reader import ReaderError

from gateway.errors import ConfigurationError

Path = tuple[str | int, ...]
Value = str | int | float | bool | None | list["Value"] | dict[str, "Value"]

TAG = "tag:yaml.org,2002:"
SCALARS = {TAG + name for name in ("str", "int", "float", "bool", "null", "timestamp")}
# YAML 1.1 read these as truth values and YAML 1.2 as text: whoever writes one bare may mean either.
TRUTHS = frozenset({"y", "n", "yes", "no", "on", "off"})
VARIABLE = re.compile(r"\$\{([^}]*)\}?")
VARIABLE_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
# Values below these keys are never shown: keys, what may hold keys, and what may be a key pasted into the wrong place.
HIDDEN = frozenset(
    {
        "api_key",
        "admin_key",
        "encryption_key",
        "sha256",
        "headers",
        "query",
        "options",
        "base_url",
        "url",
        "otlp_endpoint",
        "compose",
    }
)
SHOWN = 80  # characters of a wrong value that are shown
MAX_NODES = 50_000  # aliases of aliases can make a small file unfold into gigabytes


class Bare(str):
    """Text that stands unquoted and that another reader of YAML takes for a truth value or a date."""

    __slots__ = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """One thing that is wrong. Line and column count from 1; 0: nowhere in the file. `value` None: none, or a secret."""

    file: str
    line: int
    column: int
    path: str
    value: str | None
    message: str

    def __str__(self) -> str:
        place = f"{self.file}:{self.line}:{self.column}" if self.line else self.file
        return ": ".join(part for part in (place, self.path, self.message) if part)


class BadFile(ConfigurationError):
    """A settings file that cannot be used. The message lists every problem, a line each, in the order of the file."""

    def __init__(self, problems: Iterable[Problem]) -> None:
        unique = {(each.line, each.column, each.message): each for each in reversed(list(problems))}
        self.problems = tuple(sorted(unique.values(), key=lambda each: (each.line, each.column, each.path)))
        super().__init__("\n".join(map(str, self.problems)))


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Where a value stands, and how it is written (scalars only, before `${VARIABLE}` is replaced). Counts from 1."""

    line: int
    column: int
    text: str | None = None
    quoted: bool = False


@dataclass(slots=True, kw_only=True)
class Document:
    """The values of one file. `keys` has the places of keys, `values` those of the values; both also know merged ones."""

    source: str
    root: dict[str, Value] = field(default_factory=dict)
    keys: dict[Path, Place] = field(default_factory=dict)
    values: dict[Path, Place] = field(default_factory=dict)
    problems: list[Problem] = field(default_factory=list)

    def add(self, path: Path, message: str, *, at_key: bool = False, show: bool = False, place: Place | None = None) -> None:
        """Note a problem at a path, or at the nearest place above it; `show` adds the value unless it is a secret."""
        place = place or self._place(path, at_key)
        shown = self.shown(path) if show else None
        text = f"{message} (here: {shown})" if shown is not None else message
        self.problems.append(
            Problem(file=self.source, line=place.line, column=place.column, path=dotted(path), value=shown, message=text)
        )

    def shown(self, path: Path) -> str | None:
        """Return a scalar as it is written; None for a secret, for a mapping or list, and where nothing stands."""
        place = self.values.get(path)
        if place is None or place.text is None or HIDDEN.intersection(map(str, path)):
            return None
        return _line(place.text if len(place.text) <= SHOWN else place.text[:SHOWN] + "…")

    def troubled(self, path: Path) -> bool:
        """Whether a problem is already known at this very path."""
        return any(each.path == dotted(path) for each in self.problems)

    def find(self, pattern: str) -> Iterator[tuple[Path, Value]]:
        """Yield path and value of everything a dotted pattern names, in order; `*` stands for any key or index."""
        yield from _find(self.root, pattern.split("."), ())

    def _place(self, path: Path, at_key: bool) -> Place:
        first, second = (self.keys, self.values) if at_key else (self.values, self.keys)
        for end in range(len(path), -1, -1):
            place = first.get(path[:end]) or second.get(path[:end])
            if place is not None:
                return place
        return Place(line=1, column=1)


def _find(value: Value, parts: Sequence[str], path: Path) -> Iterator[tuple[Path, Value]]:
    if not parts:
        yield path, value
        return
    pairs: Iterable[tuple[str | int, Value]] = ()
    if isinstance(value, dict):
        pairs = value.items()
    elif isinstance(value, list):
        pairs = enumerate(value)
    for key, each in pairs:
        if parts[0] in ("*", key):
            yield from _find(each, parts[1:], (*path, key))


def dotted(path: Path) -> str:
    """Return a path as people write it: `routes[0].targets[1].provider`."""
    return _line("".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in path).removeprefix("."))


def _line(text: str) -> str:
    """Return the text with every character escaped that could begin a line of its own or hide itself."""
    return "".join(each if each.isprintable() else repr(each)[1:-1] for each in text)


def near(name: str, accepted: Iterable[str]) -> str:
    """Return `; did you mean X` for the accepted name nearest to a wrong one, "" when none is near."""
    found = difflib.get_close_matches(name, list(accepted), n=1, cutoff=0.6)
    return f"; did you mean {found[0]}" if found else ""


def read(text: str, *, source: str, env: Mapping[str, str]) -> Document:
    """Return the document of a settings file, with every problem of its YAML; BadFile when it is no YAML mapping at all.

    Duplicate keys, aliases that hold themselves, keys that are no text, unknown tags, values left empty, and variables
    that are unset or empty are problems. Top-level `x-…` keys are left out: they only hold anchors.
    """
    document = Document(source=source)
    yaml = YAML(typ="rt", pure=True)
    yaml.composer.warn_double_anchors = False  # YAML allows to give an anchor anew; the warning would show the file's text
    try:
        node = yaml.compose(text)
    except YAMLError as error:
        raise BadFile([_syntax(error, text, source)]) from None
    except RecursionError:
        document.add((), "the file is nested too deep")
        raise BadFile(document.problems) from None
    if not isinstance(node, MappingNode):
        found = "is empty" if node is None or node.value in ("", []) else "is no mapping"
        document.add((), f"the file {found}; it needs at least the keys providers and routes")
        raise BadFile(document.problems)
    reader = _Reader(document, env)
    document.root = reader.mapping(node, ())
    return document


def _syntax(error: YAMLError, text: str, source: str) -> Problem:
    # Only the parser's own words: its excerpt of the line could hold a secret.
    line, column, message = 1, 1, "cannot be read as YAML"
    if isinstance(error, MarkedYAMLError):
        mark = error.problem_mark or error.context_mark
        if mark is not None:
            line, column = mark.line + 1, mark.column + 1
        message += f": {' '.join(str(part) for part in (error.context, error.problem) if part)}"
        lines = text.splitlines()
        if 0 < line <= len(lines) and re.search(r"[\[{,].*[^\"']\$\{", lines[line - 1]):
            message += '; inside { } and [ ] write "${NAME}" in quotes'
    elif isinstance(error, ReaderError):
        before = text[: error.position]
        line, column = before.count("\n") + 1, len(before) - (before.rfind("\n") + 1) + 1
        message += ": a control character stands there"
    return Problem(file=source, line=line, column=column, path="", value=None, message=message)


class _Reader:
    """Turns nodes into values, once per use: a node that is an alias's target is read at every path that it stands at."""

    def __init__(self, document: Document, env: Mapping[str, str]) -> None:
        self.document, self.env = document, env
        self.open: list[Node] = []
        self.left = MAX_NODES

    def value(self, node: Node, path: Path) -> Value:
        if any(each is node for each in self.open):
            self.document.add(path, "this alias holds itself")
            return None
        if self.spent(path):
            return None
        if isinstance(node, ScalarNode):
            return self.scalar(node, path)
        self.document.values[path] = _start(node)
        self.open.append(node)
        try:
            if isinstance(node, MappingNode):
                return self.mapping(node, path)
            return self.sequence(node, path) if isinstance(node, SequenceNode) else None
        finally:
            self.open.pop()

    def spent(self, path: Path) -> bool:
        self.left -= 1
        if self.left == -1:
            self.document.add(path, f"the file unfolds into more than {MAX_NODES} values")
        return self.left < 0

    def sequence(self, node: SequenceNode, path: Path) -> Value:
        if node.tag != TAG + "seq":
            self.document.add(path, f"the tag {node.tag} is not accepted")
        return [self.value(each, (*path, index)) for index, each in enumerate(node.value)]

    def mapping(self, node: MappingNode, path: Path) -> dict[str, Value]:
        """Return the mapping with its merge keys resolved: a key of its own wins, then the first merged mapping that has it."""
        if node.tag != TAG + "map":
            self.document.add(path, f"the tag {node.tag} is not accepted")
        values: dict[str, Value] = {}
        for key, each in self.pairs(node, path):
            if key in values:
                continue
            if not path and key.startswith("x-"):
                self.check(each, (key,))
                continue
            values[key] = self.value(each, (*path, key))
        return values

    def pairs(self, node: MappingNode, path: Path) -> Iterator[tuple[str, Node]]:
        own: dict[str, int] = {}
        merged: list[Node] = []
        for key, value in node.value:
            name = "<<" if key.tag == TAG + "merge" else self.key(key, path)
            if name in own:
                self.document.add((*path, name), f"this key is here twice, first in line {own[name]}", place=_start(key))
                continue
            own[name] = key.start_mark.line + 1
            if name == "<<":
                merged += value.value if isinstance(value, SequenceNode) else [value]
                continue
            self.document.keys.setdefault((*path, name), _start(key))
            yield name, value
        for each in merged:
            yield from self.merged(each, path, own)

    def merged(self, node: Node, path: Path, own: dict[str, int]) -> Iterator[tuple[str, Node]]:
        if not isinstance(node, MappingNode) or any(each is node for each in self.open):
            self.document.add(path, "<< merges a mapping, or a list of mappings; one that does not hold itself")
            return
        self.open.append(node)
        for name, value in list(self.pairs(node, path)):
            if name not in own:
                own[name] = node.start_mark.line + 1
                yield name, value
        self.open.pop()

    def key(self, node: Node, path: Path) -> str:
        text = node.value if isinstance(node, ScalarNode) else "?"
        place = (*path, text)
        if not isinstance(node, ScalarNode):
            self.document.add(place, "a key is text", place=_start(node))
        elif node.style is None and (node.tag != TAG + "str" or text.lower() in TRUTHS):
            message = f'quote this key: "{text}"; bare it may be read as {_read_as(node)}'
            self.document.add(place, message, place=_start(node))
        return str(text)

    def check(self, node: Node, path: Path) -> None:
        """Note the duplicate keys below a node that is not used as such."""
        if self.spent(path) or any(each is node for each in self.open):
            return
        self.open.append(node)
        if isinstance(node, MappingNode):
            for name, value in list(self.pairs(node, path)):
                self.check(value, (*path, name))
        elif isinstance(node, SequenceNode):
            for index, each in enumerate(node.value):
                self.check(each, (*path, index))
        self.open.pop()

    def scalar(self, node: ScalarNode, path: Path) -> Value:
        text, quoted = str(node.value), node.style is not None
        place = Place(line=node.start_mark.line + 1, column=node.start_mark.column + 1, text=text, quoted=quoted)
        if not (text or quoted):
            place = self.document.keys.get(path, place)  # an empty value has no place of its own
        self.document.values[path] = place
        if node.tag == TAG + "str":
            if "${" in text:
                return self.expanded(text, path)
            return Bare(text) if not quoted and text.lower() in TRUTHS else text
        if node.tag not in SCALARS:
            self.document.add(path, f"the tag {node.tag} is not accepted")
            return None
        if node.tag == TAG + "null" and path[-1:] != ("response_format",):
            self.document.add(path, "has no value: give one, or leave the key out" + _lost(path))
        return self.plain(text, node.tag.removeprefix(TAG), path)

    def plain(self, text: str, kind: str, path: Path) -> Value:
        try:
            return _plain(text, kind)
        except ValueError:
            self.document.add(path, f"cannot be read as the {kind} that its tag or form says", show=True)
            return None

    def expanded(self, text: str, path: Path) -> str:
        """Return the text with each `${VARIABLE}` replaced; every one that cannot be is a problem."""

        def replace(match: re.Match[str]) -> str:
            name = match[1]
            if not VARIABLE_NAME.fullmatch(name) or not match[0].endswith("}"):
                self.document.add(path, "a variable is written ${NAME}, of letters, digits and _")
                return match[0]
            value = self.env.get(name)
            if not value:
                state = "not set" if value is None else "empty"
                self.document.add(path, f"the environment variable {name} is {state}; set it, or take ${{{name}}} out")
                return match[0]
            return value

        return VARIABLE.sub(replace, text)


def _start(node: Node) -> Place:
    return Place(line=node.start_mark.line + 1, column=node.start_mark.column + 1)


def _plain(text: str, kind: str) -> Value:
    if kind == "bool":
        return text.lower() in ("true", "yes", "on", "y")
    if kind == "int":
        digits = text.replace("_", "")
        return int(digits, 0) if re.match(r"[-+]?0[xob]", digits) else int(digits)
    if kind == "float":
        return float(re.sub(r"^([-+]?)\.(inf|nan)$", r"\1\2", text.replace("_", ""), flags=re.IGNORECASE))
    if kind == "timestamp":
        return Bare(text)
    return None


def _read_as(node: ScalarNode) -> str:
    names = {"int": "a number", "float": "a number", "bool": "true or false", "null": "nothing", "timestamp": "a date"}
    return names.get(str(node.tag).removeprefix(TAG), "true or false")


def quote(place: Place | None, value: object) -> str:
    """Return what to say of a scalar that stands bare where text was meant."""
    kind = "a truth value" if isinstance(value, bool) else "a number" if isinstance(value, int | float) else "something else"
    if isinstance(value, Bare):
        kind = "a truth value" if value.lower() in TRUTHS else "a date"
    if place is None or place.text is None:
        return "must be text"
    return f"bare, this may be read as {kind}; text is meant: put it in quotes"


def _lost(path: Path) -> str:
    return "; what belongs below it has lost its indentation?" if len(path) == 1 else ""
