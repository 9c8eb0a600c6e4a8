"""Records and requests as bytes: manifests of content-addressed bodies, JSON of records, compression at rest.

Owns how a request is cut into bodies and how a record is spelled. Knows no store, no clock and no network.
"""

import dataclasses
import functools
import threading
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any

import orjson
import zstandard

from gateway.context.digest import digest
from gateway.context.items import Request
from gateway.errors import LedgerError
from gateway.ledger.records import (
    CallFinished,
    CompactionApplied,
    ConfigChanged,
    Entry,
    Manifest,
    Outcome,
    PromptComposed,
    Record,
    Usage,
)

VERSION = 1
FANOUT = 32  # items a node stands for: a long session's entry then holds a few nodes and at most 31 single items
OWN_BODY_BYTES = 512  # a field value this long is a body of its own, so that tools are stored once and not each turn
PLAIN_BELOW_BYTES = 128  # shorter bodies do not shrink
_SEAM_END = b"\0"  # seams are white space and one comma in JSON, so never hold it
_DIGEST_BYTES = 32
_COMMA = b","
_MEMO_BYTES = range(2_048, 262_144)  # values for which a look-up is cheaper than SHA-256, and keeping 32 of them costs little


def manifest(request: Request) -> tuple[Manifest, dict[bytes, bytes]]:
    """Return which bodies make up this request, in order, and all of those bodies by their digest.

    The bodies of `nodes` and `seams` are among them. Never raises; an item whose `digest` is not that of its `raw`
    is found out when it is read back. 123 items take about 0.05 ms.
    """
    head, tail = _surroundings(request)
    turns = request.turns
    items = [item.digest for item in turns]
    bodies = dict(zip(items, [item.raw for item in turns], strict=True))
    whole = len(items) - len(items) % FANOUT
    nodes = [b"".join(items[at : at + FANOUT]) for at in range(0, whole, FANOUT)]
    inner = request.seams[1:-1]
    seams = None if inner.count(_COMMA) == len(inner) else _add(bodies, _SEAM_END.join(inner))
    return Manifest(
        head=tuple(_add(bodies, each) for each in head),
        nodes=tuple(_add(bodies, each) for each in nodes),
        items=tuple(items[whole:]),
        tail=tuple(_add(bodies, each) for each in tail),
        seams=seams,
    ), bodies


def leaves(manifest: Manifest, get: Callable[[bytes], bytes]) -> tuple[bytes, ...]:
    """Return the digests of all items in order; `get` is asked for the nodes. Raises LedgerError for a broken node."""
    found: list[bytes] = []
    for node in manifest.nodes:
        found += children(get(node))
    return (*found, *manifest.items)


def children(node: bytes) -> list[bytes]:
    """Return the digests that a node's body holds. Raises LedgerError when it is no node."""
    if len(node) % _DIGEST_BYTES:
        raise LedgerError(f"a node of {len(node)} bytes does not hold whole digests")
    return [node[at : at + _DIGEST_BYTES] for at in range(0, len(node), _DIGEST_BYTES)]


def joined(manifest: Manifest, get: Callable[[bytes], bytes]) -> bytes:
    """Return the very bytes that the manifest was made of. `get` returns a body by digest; its errors pass through."""
    items = list(map(get, leaves(manifest, get)))
    if manifest.seams is None:
        middle = _COMMA.join(items)
    else:
        seams = get(manifest.seams).split(_SEAM_END)
        if items and len(seams) != len(items) - 1:
            raise LedgerError(f"{len(seams)} seams stand between {len(items)} items")
        middle = b"".join(each for pair in zip(items, (*seams, b""), strict=False) for each in pair)
    return b"".join((*map(get, manifest.head), middle, *map(get, manifest.tail)))


def roots(manifest: Manifest) -> tuple[bytes, ...]:
    """Return the digests the manifest names itself, in order; the items below its nodes are not among them."""
    seams = () if manifest.seams is None else (manifest.seams,)
    return (*manifest.head, *manifest.nodes, *manifest.items, *seams, *manifest.tail)


def entry(records: tuple[Record, ...], bodies: Mapping[bytes, bytes]) -> Entry:
    """Return the entry of these records: its roots and nodes are what the records name, each once, in order."""
    named: dict[bytes, None] = {}
    nodes: dict[bytes, None] = {}
    for record in records:
        if isinstance(record, PromptComposed):
            manifests = (record.request,) if record.prompt is record.request else (record.request, record.prompt)
            for each in manifests:
                named.update(dict.fromkeys(roots(each)))
                nodes.update(dict.fromkeys(each.nodes))
            named[record.policy] = None
        elif isinstance(record, CallFinished) and record.reply is not None:
            named[record.reply] = None
    return Entry(records=records, bodies=bodies, roots=tuple(named), nodes=tuple(nodes))


def dumps(record: Record) -> bytes:
    """Return the record as JSON: `type`, `version`, then its fields by name; digests in hex, `at` in ISO 8601, UTC.

    The manifests are called `request_manifest` and `prompt_manifest`. A text that is not valid Unicode is written with
    question marks: it must not cost the record.
    """
    fields: dict[str, Any] = {"type": record.TYPE, "version": VERSION}
    for name in _NAMES[record.TYPE]:
        fields[_RENAMED.get(name, name)] = getattr(record, name)
    if isinstance(record, PromptComposed):
        fields["request_manifest"] = request = _manifest_fields(record.request)
        fields["prompt_manifest"] = request if record.prompt is record.request else _manifest_fields(record.prompt)
        fields["prompt_digest"] = record.prompt_digest.hex()
        fields["policy"] = record.policy.hex()
    elif isinstance(record, CallFinished) and record.reply is not None:
        fields["reply"] = record.reply.hex()
    fields["at"] = record.at.astimezone(UTC)
    try:
        return orjson.dumps(fields)
    except TypeError:
        return orjson.dumps(_valid(fields))


def loads(data: bytes) -> Record:
    """Return the record that `dumps` wrote. Raises LedgerError for another type or version, and for anything broken."""
    try:
        fields = orjson.loads(data)
        kind, version = fields.pop("type"), fields.pop("version")
        if kind not in _TYPES or version != VERSION:
            raise LedgerError(f"record type {kind!r} version {version!r} is not known here; {sorted(_TYPES)} version {VERSION} are")
        return _record(_TYPES[kind], fields)
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise LedgerError(f"a stored record cannot be read ({type(error).__name__})") from error


def compress(body: bytes) -> bytes:
    """Return the body as it is stored: one byte that tells how, then the bytes, plain or as a zstd frame."""
    if len(body) >= PLAIN_BELOW_BYTES:
        packed = _squeeze().compress(body)
        if len(packed) < len(body):
            return b"z" + packed
    return b"p" + body


def expand(stored: bytes) -> bytes:
    """Return the body that `compress` was given. Raises LedgerError when it cannot be read."""
    if stored[:1] == b"p":
        return stored[1:]
    if stored[:1] != b"z":
        raise LedgerError("a stored body has an unknown encoding")
    try:
        return zstandard.ZstdDecompressor().decompress(stored[1:])
    except zstandard.ZstdError as error:
        raise LedgerError("a stored body is damaged") from error


def verified(wanted: bytes, stored: bytes | None) -> bytes:
    """Return the body behind a stored value. Raises LedgerError naming the digest when it is missing, damaged or another's."""
    if stored is None:
        raise LedgerError(f"body {wanted.hex()} is not in the ledger")
    try:
        body = expand(stored)
    except LedgerError as error:
        raise LedgerError(f"body {wanted.hex()}: {error.message}") from error
    if digest(body) != wanted:
        raise LedgerError(f"body {wanted.hex()} does not match its digest")
    return body


def group(record: Record) -> str:
    """Return the name a record is found under: its snapshot, else (a refusal, a configuration) its own id."""
    return record.snapshot_id or record.id


def _surroundings(request: Request) -> tuple[list[bytes], list[bytes]]:
    """Return the pieces before the first item and those after the last, short neighbours joined."""
    head: list[bytes] = []
    done: list[bytes] | None = None
    loose: list[bytes] = []
    for each in request.fields:
        loose.append(each.lead)
        if each.name == request.items_field and done is None:
            loose.append(request.seams[0])
            if request.turns:
                head.append(b"".join(loose))
                done, head, loose = head, [], [request.seams[-1]]
        elif len(each.value) < OWN_BODY_BYTES:
            loose.append(each.value)
        else:
            head += (b"".join(loose), each.value)
            loose = []
    loose.append(request.close)
    if last := b"".join(loose):
        head.append(last)
    return (head, []) if done is None else (done, head)


def _add(bodies: dict[bytes, bytes], body: bytes) -> bytes:
    name = _remembered(body) if len(body) in _MEMO_BYTES else digest(body)
    bodies[name] = body
    return name


@functools.lru_cache(maxsize=32)
def _remembered(body: bytes) -> bytes:
    """The tools come back with every turn: a hash look-up is a third of the cost of their SHA-256."""
    return digest(body)


_own = threading.local()


def _squeeze() -> zstandard.ZstdCompressor:
    """One compressor a thread: it is costly to make and must not be shared between threads."""
    found: zstandard.ZstdCompressor | None = getattr(_own, "compressor", None)
    if found is None:
        found = _own.compressor = zstandard.ZstdCompressor(level=1)
    return found


_RENAMED = {"request": "request_manifest", "prompt": "prompt_manifest"}
_TYPES: dict[str, type[Record]] = {each.TYPE: each for each in (PromptComposed, CompactionApplied, CallFinished, ConfigChanged)}


_NAMES = {name: tuple(each.name for each in dataclasses.fields(kind)) for name, kind in _TYPES.items()}


def _manifest_fields(manifest: Manifest) -> dict[str, Any]:
    return {
        "head": [each.hex() for each in manifest.head],
        "nodes": [each.hex() for each in manifest.nodes],
        "items": [each.hex() for each in manifest.items],
        "tail": [each.hex() for each in manifest.tail],
        "seams": manifest.seams and manifest.seams.hex(),
    }


def _manifest(fields: Mapping[str, Any]) -> Manifest:
    head, nodes, items, tail = (tuple(map(bytes.fromhex, fields[name])) for name in ("head", "nodes", "items", "tail"))
    seams = None if fields["seams"] is None else bytes.fromhex(fields["seams"])
    return Manifest(head=head, nodes=nodes, items=items, tail=tail, seams=seams)


def _record(kind: type[Record], fields: dict[str, Any]) -> Record:
    fields["at"] = datetime.fromisoformat(fields["at"])
    if kind is PromptComposed:
        fields["request"] = _manifest(fields.pop("request_manifest"))
        fields["prompt"] = _manifest(fields.pop("prompt_manifest"))
        fields["prompt_digest"] = bytes.fromhex(fields["prompt_digest"])
        fields["policy"] = bytes.fromhex(fields["policy"])
    if kind is CallFinished:
        fields["outcome"] = Outcome(fields["outcome"])
        fields["usage"] = None if fields["usage"] is None else Usage(**fields["usage"])
        fields["reply"] = None if fields["reply"] is None else bytes.fromhex(fields["reply"])
    return kind(**fields)


def _valid(value: Any) -> Any:
    """Return the value with every lone surrogate, which JSON in UTF-8 cannot hold, as a question mark."""
    if isinstance(value, str):
        return value.encode("utf-8", "replace").decode()
    if isinstance(value, Mapping):
        return {_valid(key): _valid(each) for key, each in value.items()}
    if isinstance(value, (list, tuple)):
        return [_valid(each) for each in value]
    return value
