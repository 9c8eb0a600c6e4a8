"""What one target wants spelled otherwise at the top level of a body: model, field names, usage in streams, output limit."""

import json
import re
from dataclasses import replace

from gateway.context import admission
from gateway.context.items import Request
from gateway.context.policy import Policy

OUTPUT_FIELDS = ("max_completion_tokens", "max_tokens")
ASK = b'"include_usage":true'
_SPACE = re.compile(r"[ \t\n\r]*")


def size(request: Request) -> int:
    """Return the bytes of the body without its items."""
    return sum(len(each.lead) + len(each.value) for each in request.fields)


def spelled(request: Request, policy: Policy) -> Request:
    """Return the request as the target wants it spelled, in a fixed order: model, renamed, dropped, usage asked for.

    The same object when nothing differs.
    """
    if request.model != policy.model:
        request = replace(request.with_value("model", json.dumps(policy.model).encode()), model=policy.model)
    for old, new in policy.rename_fields:
        made = request.renamed(old, new)
        request = replace(made, output_limit_field=new) if made is not request and made.output_limit_field == old else made
    for name in policy.drop_fields:
        request = request.without(name)
    asks = policy.ask_usage and "stream_options" not in policy.drop_fields
    return _asking_usage(request) if request.stream and not request.include_usage and asks else request


def shrunk(request: Request, input_tokens: int, policy: Policy) -> Request:
    """Return the request with an output limit that the window has room for beside the input, where the policy lets it shrink.

    Also never above the model's own output limit. A request that names no limit, or one that fits, stays the same object.
    """
    asked, named = request.output_limit, request.output_limit_field
    if not policy.shrink_output or asked is None or named is None:
        return request
    allowed = asked if policy.window.output_limit is None else min(asked, policy.window.output_limit)
    if policy.window.tokens is not None:
        allowed = min(allowed, policy.window.tokens - admission.kept_free(policy) - input_tokens)
    if allowed >= asked:
        return request
    for name in dict.fromkeys((named, *OUTPUT_FIELDS)):
        value = request.value(name) or b""
        if value.isdigit() and (len(value) > 15 or int(value) > allowed):  # `int` refuses thousands of digits
            request = request.with_value(name, b"%d" % allowed)
    return replace(request, output_limit=allowed)


def _asking_usage(request: Request) -> Request:
    """Ask for the usage of a stream; the other options keep their bytes. Options that are no object are left to the provider."""
    options = request.value("stream_options") or b"null"
    if options == b"null":
        return replace(request.with_value("stream_options", b"{" + ASK + b"}"), include_usage=True)
    if options[:1] != b"{":
        return request
    others = [raw for name, raw in _members(options.decode()) if name != "include_usage"]
    value = b"{" + b",".join([*(raw.encode() for raw in others), ASK]) + b"}"
    return replace(request.with_value("stream_options", value), include_usage=True)


def _members(text: str) -> list[tuple[str, str]]:
    """Return the members of a JSON object that is known to be legal: each key, decoded, and the member's own text."""
    decoder = json.JSONDecoder(parse_int=str, parse_float=str)
    made: list[tuple[str, str]] = []
    at = 1
    while True:
        start = _skip(text, at)
        if text[start] == "}":
            return made
        name, end = decoder.raw_decode(text, start)
        _, end = decoder.raw_decode(text, _skip(text, _skip(text, end) + 1))
        made.append((name, text[start:end]))
        at = _skip(text, end) + (text[_skip(text, end)] == ",")


def _skip(text: str, at: int) -> int:
    found = _SPACE.match(text, at)
    return found.end() if found else at
