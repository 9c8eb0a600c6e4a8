"""What is known of a model without asking anyone: window, output limit, prices, tokenizer, from litellm's bundled map.

The map is read as a file; litellm itself is never imported. Only the rows asked for are kept.
"""

import importlib.util
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

import msgspec

from gateway.routing import Prices

MAP = "model_prices_and_context_window_backup.json"
# Rows whose `max_input_tokens` is the input budget beside the output, not the window. Source: reference, model-windows, section 2.
INPUT_BUDGET = re.compile(r"^gpt-(?:5(?:\.[126])?|6(?:\.\d+)?)(?:-|$)")
O200K = re.compile(r"^(?:gpt-(?:4o|4\.1|4\.5|5|6)|chatgpt|o\d)")
CL100K = re.compile(r"^(?:gpt-4|gpt-3\.5|text-embedding)")


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """Figures of one model: tokens, and USD per million. None: the map does not say."""

    window: int | None = None
    output_limit: int | None = None
    prices: Prices | None = None


def tokenizer(model: str) -> str:
    """Return the tokenizer for a model's name; "bytes" where none of ours is known to fit."""
    name = model.rsplit("/", 1)[-1].lower()
    if O200K.match(name):
        return "o200k_base"
    return "cl100k_base" if CL100K.match(name) else "bytes"


def lookup(wanted: Iterable[tuple[str, str]]) -> Mapping[tuple[str, str], Row]:
    """Return the rows of (provider, model) pairs that the map knows; it is tried as the model alone, then with the provider in front."""
    path = _path()
    if path is None:
        return {}
    rows = msgspec.json.decode(path.read_bytes(), type=dict[str, msgspec.Raw])
    found = {}
    for provider, model in wanted:
        raw = rows.get(model) or rows.get(f"{provider}/{model}")
        if raw is not None and model != "sample_spec":
            found[provider, model] = _row(model, msgspec.json.decode(raw, type=dict[str, object]))
    return found


def _path() -> Path | None:
    package = importlib.util.find_spec("litellm")  # looks for the package, does not run it
    if package is None or package.origin is None:
        return None
    path = Path(package.origin).parent / MAP
    return path if path.is_file() else None


def _row(model: str, values: Mapping[str, object]) -> Row:
    window, output = _tokens(values.get("max_input_tokens")), _tokens(values.get("max_output_tokens"))
    if window and output and INPUT_BUDGET.match(model.rsplit("/", 1)[-1]):
        window += output
    return Row(window=window, output_limit=output, prices=_prices(values))


def _tokens(value: object) -> int | None:
    return int(value) if isinstance(value, int | float) and not isinstance(value, bool) and value > 0 else None


def _prices(values: Mapping[str, object]) -> Prices | None:
    def usd(name: str) -> float | None:
        value = values.get(name)
        return float(value) * 1e6 if isinstance(value, int | float) and not isinstance(value, bool) else None

    paid, output = usd("input_cost_per_token"), usd("output_cost_per_token")
    if paid is None or output is None:
        return None
    return Prices(
        input=paid, cached=usd("cache_read_input_token_cost"), cache_write=usd("cache_creation_input_token_cost"), output=output
    )
