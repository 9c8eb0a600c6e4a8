"""Counting tokens, offline: tiktoken on the vocabularies that the litellm wheel ships, and bytes where none fits.

The only module that knows tiktoken. Nothing here fetches: a vocabulary that is not on disk is a configuration error.
"""

import asyncio
import hashlib
import importlib.util
import os
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING

from gateway.context import tokens
from gateway.context.items import Dialect, Item
from gateway.context.layout import Arranged
from gateway.context.policy import Policy
from gateway.context.prefixes import Prefixes
from gateway.context.tokens import Costs
from gateway.errors import ConfigurationError

if TYPE_CHECKING:
    import tiktoken

# The names that tiktoken gives these files in its cache (the SHA-1 of where each was published), and the SHA-256 of each.
VOCABULARIES = {
    "o200k_base": (
        "fb374d419588a4632f3f557e76b4b70aebbca790", "446a9538cb6c348e3516120d7c08b09f57c36495e2acfffe59a5bf8b0cfb1a2d"
    ),
    "cl100k_base": (
        "9b5ad71b2ce5302211f9c61530b329a4922fc6a4", "223921b76ee99bde995b7ff738513eef100fb51d18c93597a113bcffe865b2a7"
    ),
}  # fmt: skip
BYTES = "bytes"  # no vocabulary: a token for three bytes
INLINE_CHARACTERS = 16_384  # more new text than this is counted in a thread: tiktoken lets go of the interpreter
# One unbroken run of a million spaces overflows tiktoken's stack, one of a million letters takes it seconds; a text that holds
# a long run is counted in pieces of this many characters, at most a little too high.
LONGEST_RUN = 2_000
SLAB = 1 << 18  # characters given to tiktoken at once: the list it makes of them is made under the interpreter's lock
MEMO = 100_000  # counts kept (25 MB), oldest half dropped together
TEXTS_CHARACTERS = 1 << 23  # of tools and the like, whose counts are kept by their text

_lock = threading.Lock()
_loaded: "dict[str, tiktoken.Encoding]" = {}


def check(name: str, folder: Path | None = None) -> None:
    """Raise ConfigurationError unless the tokenizer is one of ours and its vocabulary is on disk, undamaged.

    `folder` is where the vocabularies are, None the litellm package's own.
    """
    if name == BYTES:
        return
    if name not in VOCABULARIES:
        raise ConfigurationError(f"no tokenizer {name!r}; there are {', '.join((*VOCABULARIES, BYTES))}")
    file, expected = VOCABULARIES[name]
    path = (folder or _folder()) / file
    if not path.is_file():
        raise ConfigurationError(f"the vocabulary of {name} is not in the litellm package; install it again from the lock file")
    if hashlib.sha256(path.read_bytes()).hexdigest() != expected:  # tiktoken would delete the file and fetch another
        raise ConfigurationError(f"the vocabulary of {name} in the litellm package is damaged; install it again from the lock file")


def count(name: str, text: str) -> int:
    """Return the tokens of a text. Special tokens count as text, a lone surrogate as a replacement character.

    ConfigurationError when there is no such tokenizer. The first count with a vocabulary loads it: half a second, 30 to 70 MB.
    """
    if name == BYTES:
        return -(-len(text.encode("utf-8", "surrogatepass")) // tokens.BYTES_PER_TOKEN)
    encode = _encoding(name).encode_ordinary  # repairs lone surrogates itself
    size = len(text)
    if size < LONGEST_RUN:
        return len(encode(text))
    step = LONGEST_RUN if _has_long_run(text) else SLAB
    return sum(len(encode(text[at : at + step])) for at in range(0, size, step))


def _has_long_run(text: str) -> bool:
    """Whether the text may hold a run of so many characters, all of them white space or none. A run that long holds a whole slab.

    A regular expression says it exactly, and holds the interpreter for 50 ms a megabyte; this takes a hundredth of that.
    """
    for separator in "\x1c\x1d\x1e\x1f":  # white space for Python, not for tiktoken
        if separator in text:
            text = text.replace(separator, "=")
    slab = LONGEST_RUN // 2
    return any(_unbroken(text[at : at + slab]) for at in range(0, len(text) - slab + 1, slab))


def _unbroken(slab: str) -> bool:
    return slab.isspace() or (len(slab.split(None, 1)) == 1 and not slab[0].isspace() and not slab[-1].isspace())


def _folder() -> Path:
    found = importlib.util.find_spec("litellm")  # looks for the package, does not run it
    if found is None or found.origin is None:
        raise ConfigurationError("the litellm package, whose vocabularies count tokens, is not installed")
    return Path(found.origin).parent / "litellm_core_utils" / "tokenizers"


def _encoding(name: str) -> "tiktoken.Encoding":
    made = _loaded.get(name)
    if made is None:
        with _lock:
            made = _loaded.get(name) or _load(name)
            _loaded[name] = made
    return made


def _load(name: str) -> "tiktoken.Encoding":
    import tiktoken  # a third of a second and 40 MB with its vocabulary: only where a prompt must be counted

    check(name)
    before = os.environ.get("TIKTOKEN_CACHE_DIR")
    os.environ["TIKTOKEN_CACHE_DIR"] = str(_folder())
    try:
        return tiktoken.get_encoding(name)
    finally:
        if before is None:
            del os.environ["TIKTOKEN_CACHE_DIR"]
        else:
            os.environ["TIKTOKEN_CACHE_DIR"] = before


class Counter:
    """Counts what a request costs, each message once: counts are kept by tokenizer, dialect and digest.

    `counting` returns the tokens of a text by a tokenizer's name; `memo` is how many messages' counts are kept.
    """

    def __init__(self, counting: Callable[[str, str], int] = count, memo: int = MEMO) -> None:
        self._count, self._memo = counting, memo
        self._young: dict[tuple[str, str, bytes], int] = {}
        self._old: dict[tuple[str, str, bytes], int] = {}
        self._texts: dict[tuple[str, str], int] = {}
        self._texts_size = 0
        self._prices = Prefixes[tuple[int, ...]]()
        self._pool = ThreadPoolExecutor(2, "count")

    async def costs(self, arranged: Arranged, policy: Policy) -> Costs:
        """Return the counted costs; much new text, and the first with a vocabulary, is counted off the event loop."""
        name = policy.tokenizer
        if (name != BYTES and name not in _loaded) or self._new_characters(arranged, policy) > INLINE_CHARACTERS:
            return await asyncio.get_running_loop().run_in_executor(self._pool, self.costs_now, arranged, policy)
        return self.costs_now(arranged, policy)

    def costs_now(self, arranged: Arranged, policy: Policy) -> Costs:
        """Return the same, counted here and now."""
        name, safety, dialect = policy.tokenizer, policy.safety, arranged.dialect

        def price(items: Sequence[Item]) -> Iterator[int]:
            return (tokens.priced(self._item(name, item, dialect), item, safety) for item in items)

        items = tokens.known(arranged.request.items, (name, dialect.name, safety), price, self._prices)
        notes = [self._item(name, item, dialect) for item in arranged.notes]
        return tokens.counted(arranged, items, notes, self._envelope(name, dialect.request_texts(arranged.request)), safety)

    def _new_characters(self, arranged: Arranged, policy: Policy) -> int:
        name = policy.tokenizer
        known, _ = self._prices.longest(arranged.request.items, (name, arranged.dialect.name, policy.safety)) or (0, ())
        items, dialect = (*arranged.request.items[known:], *arranged.notes), arranged.dialect
        keyed = (((name, dialect.name, item.digest), item) for item in items)
        size = sum(len(item.raw) - item.media_bytes for key, item in keyed if key not in self._young and key not in self._old)
        return size + sum(len(text) for text in dialect.request_texts(arranged.request) if (name, text) not in self._texts)

    def _item(self, name: str, item: Item, dialect: Dialect) -> int:
        key = (name, dialect.name, item.digest)
        found = self._young.get(key)
        if found is None:
            found = self._old.get(key)
            if found is None:
                found = self._count(name, dialect.wire_text(item))
            if len(self._young) >= self._memo // 2:
                self._old, self._young = self._young, {}
            self._young[key] = found
        return found

    def _envelope(self, name: str, texts: Sequence[str]) -> int:
        total = 0
        for text in texts:
            found = self._texts.get((name, text))
            if found is None:
                found = self._count(name, text)
                self._texts_size += len(text)
                if self._texts_size > TEXTS_CHARACTERS:
                    self._texts.clear()
                    self._texts_size = len(text)
                self._texts[name, text] = found
            total += found
        return total
