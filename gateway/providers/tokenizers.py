"""Counting tokens, offline: tiktoken on the vocabularies that the litellm wheel ships, and bytes where none fits.

The only module that knows tiktoken. Nothing here fetches: a vocabulary that is not on disk is a configuration error.
"""

import asyncio
import importlib.util
import os
import re
import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING

from gateway.context import tokens
from gateway.context.items import Item
from gateway.context.layout import Arranged
from gateway.context.policy import Policy
from gateway.context.tokens import Costs
from gateway.dialects.chat import CHAT
from gateway.errors import ConfigurationError

if TYPE_CHECKING:
    import tiktoken

# The names that tiktoken gives these files in its cache: the SHA-1 of where each was published.
VOCABULARIES = {
    "o200k_base": "fb374d419588a4632f3f557e76b4b70aebbca790",
    "cl100k_base": "9b5ad71b2ce5302211f9c61530b329a4922fc6a4",
}
BYTES = "bytes"  # no vocabulary: a token for three bytes
INLINE_CHARACTERS = 16_384  # more new text than this is counted in a thread: tiktoken lets go of the interpreter
LONGEST_RUN = 2_000  # tiktoken is quadratic in one unbroken word, and a long run of white space overflows its stack and panics:
# a text with a longer run of either is counted in pieces, at most a little too high.
MEMO = 200_000  # counts kept, oldest half dropped together

# A run of either kind, tried only where one starts: linear. Python counts U+001C to U+001F as white space, tiktoken does not.
_RUN = re.compile(
    rf"(?<![\S\x1c-\x1f])[\S\x1c-\x1f]{{{LONGEST_RUN},}}|(?<!\s)\s{{{LONGEST_RUN},}}",
)
_lock = threading.Lock()
_loaded: "dict[str, tiktoken.Encoding]" = {}


def check(name: str) -> None:
    """Raise ConfigurationError unless the tokenizer is one of ours and its vocabulary is on disk."""
    if name == BYTES:
        return
    if name not in VOCABULARIES:
        raise ConfigurationError(f"no tokenizer {name!r}; there are {', '.join((*VOCABULARIES, BYTES))}")
    if not (_folder() / VOCABULARIES[name]).is_file():
        raise ConfigurationError(f"the vocabulary of {name} is not in the litellm package; install it again from the lock file")


def count(name: str, text: str) -> int:
    """Return the tokens of a text. Special tokens count as text; a lone surrogate counts as the replacement character."""
    if name == BYTES:
        return -(-len(text.encode("utf-8", "replace")) // tokens.BYTES_PER_TOKEN)
    encoding = _encoding(name)
    if len(text) < LONGEST_RUN or not _RUN.search(text):
        return len(_encode(encoding, text))
    return sum(len(_encode(encoding, text[at : at + LONGEST_RUN])) for at in range(0, len(text), LONGEST_RUN))


def _encode(encoding: "tiktoken.Encoding", text: str) -> list[int]:
    return encoding.encode_ordinary(text)  # repairs lone surrogates itself


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
    """Counts what a request costs, each message once: counts are kept by tokenizer and digest."""

    def __init__(self) -> None:
        self._young: dict[tuple[str, bytes], int] = {}
        self._old: dict[tuple[str, bytes], int] = {}
        self._texts: dict[tuple[str, str], int] = {}
        self._pool = ThreadPoolExecutor(1, "count")

    async def costs(self, arranged: Arranged, policy: Policy) -> Costs:
        """Return the counted costs; much new text is counted off the event loop."""
        new = self._new(arranged, policy.tokenizer)
        size = sum(len(item.raw) - item.media_bytes for item in new) + sum(map(len, CHAT.request_texts(arranged.request)))
        if size > INLINE_CHARACTERS or (policy.tokenizer != BYTES and policy.tokenizer not in _loaded):
            return await asyncio.get_running_loop().run_in_executor(self._pool, self.costs_now, arranged, policy)
        return self.costs_now(arranged, policy)

    def costs_now(self, arranged: Arranged, policy: Policy) -> Costs:
        """Return the same, counted here and now."""
        name = policy.tokenizer
        items = [self._item(name, item) for item in arranged.request.items]
        notes = [self._item(name, item) for item in arranged.notes]
        return tokens.counted(arranged, items, notes, self._envelope(name, CHAT.request_texts(arranged.request)), policy.safety)

    def _new(self, arranged: Arranged, name: str) -> Sequence[Item]:
        return [i for i in (*arranged.request.items, *arranged.notes) if (name, i.digest) not in self._young]

    def _item(self, name: str, item: Item) -> int:
        key = (name, item.digest)
        found = self._young.get(key)
        if found is None:
            found = self._old.get(key)
            if found is None:
                found = count(name, CHAT.wire_text(item))
            if len(self._young) >= MEMO // 2:
                self._old, self._young = self._young, {}
            self._young[key] = found
        return found

    def _envelope(self, name: str, texts: Sequence[str]) -> int:
        total = 0
        for text in texts:
            found = self._texts.get((name, text))
            if found is None:
                if len(self._texts) > 512:
                    self._texts.clear()
                found = self._texts[name, text] = count(name, text)
            total += found
        return total
