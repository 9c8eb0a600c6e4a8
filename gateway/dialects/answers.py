"""What an OpenAI-shaped answer says, plain or streamed, for the records.

Never raises: the client gets the bytes whatever they are.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import msgspec
import orjson

from gateway.cache.usage import Usage, latest, openai_usage
from gateway.dialects import sse
from gateway.dialects.fields import clean

ToolCall = Mapping[str, object]


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """An answer's first choice. `tool_calls` have the wire's shape, `{"id", "type", "function": {"name", "arguments"}}`.

    `finished`: every choice that was seen has its finish reason. `done`: the stream's end marker came. `error` is what the
    provider said instead of an answer or in the midst of one, or why it cannot be read; None when there was none.
    `readable` is False for a plain reply that is no JSON object at all.
    """

    text: str = ""
    tool_calls: tuple[ToolCall, ...] = ()
    finish_reason: str | None = None
    refusal: str | None = None
    usage: Usage | None = None
    finished: bool = False
    done: bool = False
    error: str | None = None
    readable: bool = True


def read_reply(body: bytes) -> Answer:
    """Return what a JSON reply says; NaN and infinities are read, bytes that are no JSON object give an `error`."""
    reply = object_of(body)
    if reply is None:
        return Answer(error="the answer is not a JSON object", readable=False)
    reading = _Reading()
    reading.take(reply, "message")
    return reading.answer(done=True)


def read_stream(data: bytes) -> Answer:
    """Return what the bytes of a whole stream say; tool calls are put together from their pieces."""
    reading, done = _Reading(), False
    for payload in sse.events(data):
        if payload.startswith(b"[DONE]"):
            done = True
            break  # SDKs stop reading here too
        if (words := _words(payload)) is not None:
            reading.say(words)
            continue
        chunk = object_of(payload)
        if chunk is None:
            reading.error = reading.error or "an event is not a JSON object"
        else:
            reading.take(chunk, "delta")
    return reading.answer(done=done)


class _Delta(msgspec.Struct, forbid_unknown_fields=True):
    content: str


class _Choice(msgspec.Struct, forbid_unknown_fields=True):
    delta: _Delta
    index: Literal[0]
    finish_reason: None = None
    logprobs: None = None


class _Chunk(msgspec.Struct, forbid_unknown_fields=True):
    """A chunk that holds a piece of text and nothing else worth reading: most of a stream, read five times as fast."""

    choices: tuple[_Choice]
    id: msgspec.Raw = msgspec.Raw()
    object: Literal["chat.completion.chunk"] = "chat.completion.chunk"
    created: msgspec.Raw = msgspec.Raw()
    model: msgspec.Raw = msgspec.Raw()
    usage: None = None
    service_tier: msgspec.Raw = msgspec.Raw()
    system_fingerprint: msgspec.Raw = msgspec.Raw()
    obfuscation: msgspec.Raw = msgspec.Raw()


_CHUNK = msgspec.json.Decoder(_Chunk)


def _words(payload: bytes) -> str | None:
    """Return the text of a plain chunk, None for any other."""
    try:
        return _CHUNK.decode(payload).choices[0].delta.content
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None


@dataclass(slots=True)
class _Call:
    """A tool call as it grows. `index` None: the provider gave none."""

    index: object
    id: str = ""
    type: str = "function"
    name: str = ""
    arguments: str = ""

    def wire(self) -> ToolCall:
        return {"id": self.id, "type": self.type, "function": {"name": self.name, "arguments": self.arguments}}


class _Reading:
    """What was read so far, from one reply or from chunk after chunk."""

    def __init__(self) -> None:
        self._texts: list[str] = []
        self._refusals: list[str] = []
        self._calls: list[_Call] = []
        self._reasons: dict[object, str | None] = {}
        self._usage: Usage | None = None
        self.error: str | None = None

    def say(self, words: str) -> None:
        """Read a chunk of the first choice that holds text and nothing else."""
        self._texts.append(words)
        self._reasons.setdefault(0, None)

    def take(self, value: Mapping[str, object], part: str) -> None:
        """Read one reply (`part` is `message`) or chunk (`delta`)."""
        self.error = self.error or _error(value)
        self._usage = latest(self._usage, openai_usage(value))
        for position, choice in enumerate(_list(value.get("choices"))):
            chosen = _object(choice)
            index = chosen.get("index", position)
            index = index if isinstance(index, int) else position
            reason = chosen.get("finish_reason")
            self._reasons[index] = clean(reason) if isinstance(reason, str) and reason else self._reasons.get(index)
            if index == 0:
                self._speak(_object(chosen.get(part)))

    def answer(self, *, done: bool) -> Answer:
        return Answer(
            text="".join(self._texts),
            tool_calls=tuple(call.wire() for call in self._calls),
            finish_reason=self._reasons.get(0),
            refusal="".join(self._refusals) or None,
            usage=self._usage,
            finished=bool(self._reasons) and None not in self._reasons.values(),
            done=done,
            error=self.error,
        )

    def _speak(self, said: Mapping[str, object]) -> None:
        self._texts.append(_text(said.get("content")))
        self._refusals.append(_text(said.get("refusal")))
        for piece in _list(said.get("tool_calls")):
            self._call(_object(piece))
        if legacy := _object(said.get("function_call")):
            self._call({"index": "function_call", "type": "function", "function": legacy})

    def _call(self, piece: Mapping[str, object]) -> None:
        """Add one piece to its call. Some servers leave the index out, or send 0 for each: then the id tells calls apart."""
        index, name = piece.get("index"), _text(piece.get("id"))
        call = self._find(index, name)
        if call is None:
            call = _Call(index)
            self._calls.append(call)
        kind = _text(piece.get("type"))
        made = _object(piece.get("function") or piece.get("custom"))
        call.id, call.type = call.id or name, kind or call.type
        call.name = call.name or _text(made.get("name"))
        arguments = made.get("arguments", made.get("input"))
        # Some servers send the arguments as an object: its JSON is what was meant.
        call.arguments += _text(arguments) if arguments is None or isinstance(arguments, str) else clean(json.dumps(arguments))

    def _find(self, index: object, name: str) -> _Call | None:
        for call in reversed(self._calls):
            if index is None or call.index == index:
                if not name or call.id == name:
                    return call
                if index is not None and not call.id:
                    return call
        return None


def object_of(data: bytes) -> Mapping[str, object] | None:
    """Return the JSON object, None when it is none. The fast reader first, the tolerant one for what it refuses."""
    try:
        value = orjson.loads(data)
    except orjson.JSONDecodeError:
        try:
            value = json.loads(data.decode("utf-8", "replace"), parse_int=_number)
        except (ValueError, RecursionError):
            return None
    return value if isinstance(value, dict) else None


def _number(digits: str) -> float:
    return int(digits) if len(digits) < 20 else float(digits)  # thousands of digits raise in `int`


def _error(value: Mapping[str, object]) -> str | None:
    found = value.get("error") or _object(value.get("x_groq")).get("error")
    if not found and value.get("object") == "error":  # vLLM and Mistral: flat
        found = value
    if not found:
        return None
    message = found.get("message") if isinstance(found, Mapping) else found
    return _text(message) or "the provider sent an error without a message"


def _text(value: object) -> str:
    """Return a text, or the texts of a list of parts (Mistral), such that it can be encoded."""
    if isinstance(value, str):
        return clean(value)
    return "".join(_text(_object(part).get("text")) for part in value) if isinstance(value, list) else ""


def _object(value: object) -> Mapping[str, object]:
    return value if isinstance(value, dict) else {}


def _list(value: object) -> Sequence[object]:
    return value if isinstance(value, list) else ()
