"""What is known of a model without asking anyone: window, output limit, prices, tokenizer, from litellm's bundled map.

The map is read as a file; litellm itself is never imported. Only the rows asked for are kept.
"""

import importlib.util
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import msgspec

from gateway.cache.cost import Prices, Tier
from gateway.errors import ConfigurationError

MAP = "model_prices_and_context_window_backup.json"
# Rows whose `max_input_tokens` is the input budget beside the output, not the window: OpenAI's 5, 5.1, 5.2, 5.6 and 6.x, told by
# name *and* figures, since their chat, codex and resold rows give the window. Source: reference, model-windows, section 2.
INPUT_BUDGET = re.compile(r"^gpt-(?:5(?:\.[126])?|6(?:\.\d+)?)(?:-|$)")
BUDGETS = {(272_000, 128_000), (922_000, 128_000)}
O200K = re.compile(r"^(?:gpt-(?:4o|4\.1|4\.5|[5-9]|[12]\d|oss)|chatgpt|codex|o\d(?:-|$))")
_LONG = re.compile(r"input_cost_per_token_above_(\d+)k_tokens")
_LONGER = ("cache_creation_input_token_cost_above_1hr", "cache_creation_input_token_cost_above_12hr")
CL100K = re.compile(r"^(?:gpt-4|gpt-3\.5|gpt-35|text-embedding-(?:ada|3))")


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """Figures of one model: tokens, and USD per million. None: the map does not say.

    `window` holds prompt and output together. `input_limit` is what the prompt alone may have, where that is less.
    """

    window: int | None = None
    input_limit: int | None = None
    output_limit: int | None = None
    prices: Prices | None = None


def tokenizer(model: str) -> str:
    """Return the tokenizer for a model's name; "bytes" where none of ours is known to fit."""
    name = model.rsplit("/", 1)[-1].lower()
    if O200K.match(name):
        return "o200k_base"
    return "cl100k_base" if CL100K.match(name) else "bytes"


def lookup(wanted: Iterable[tuple[str, str]], path: Path | None = None) -> Mapping[tuple[str, str], Row]:
    """Return the rows of (provider, model) pairs that the map knows; the others are missing.

    A row of that provider (`xai/grok-4.7`) goes before the model's own (`gpt-4o`): prices and windows differ by who serves.
    `path` is the map, None the one that the litellm package ships. ConfigurationError when it cannot be read.
    """
    path = path or _path()
    if path is None:
        return {}
    rows = _rows(path)
    found = {}
    for provider, model in wanted:
        raw = next((rows[key] for key in (f"{provider}/{model}", model) if key in rows and key != "sample_spec"), None)
        if raw is not None:
            found[provider, model] = _row(model, msgspec.json.decode(raw, type=dict[str, object]))
    return found


def _rows(path: Path) -> Mapping[str, msgspec.Raw]:
    """Return every row as its own bytes: 4,900 rows in 30 ms, 4 MB that go with the caller's frame."""
    try:
        return msgspec.json.decode(path.read_bytes(), type=dict[str, msgspec.Raw])
    except (OSError, msgspec.DecodeError) as error:
        raise ConfigurationError(
            f"the price map {path.name} cannot be read ({type(error).__name__}); install litellm again"
        ) from error


def _path() -> Path | None:
    package = importlib.util.find_spec("litellm")  # looks for the package, does not run it
    if package is None or package.origin is None:
        return None
    path = Path(package.origin).parent / MAP
    return path if path.is_file() else None


def _row(model: str, values: Mapping[str, object]) -> Row:
    given, output = _tokens(values.get("max_input_tokens")), _tokens(values.get("max_output_tokens"))
    prices = _prices(values)
    if given and output and (given, output) in BUDGETS and INPUT_BUDGET.match(model.rsplit("/", 1)[-1]):
        return Row(window=given + output, input_limit=given, output_limit=output, prices=prices)
    return Row(window=given, output_limit=output, prices=prices)


def _tokens(value: object) -> int | None:
    return int(value) if isinstance(value, int | float) and not isinstance(value, bool) and value > 0 else None


def _prices(values: Mapping[str, object]) -> Prices | None:
    """Return what a row says of prices, those of long contexts with it; None when it lacks that of input or output."""
    base = _priced(values, "", None)
    if base is None:
        return None
    bounds = sorted({int(found[1]) for name in values if (found := _LONG.fullmatch(name))})
    tiers = [(bound, _priced(values, f"_above_{bound}k_tokens", base)) for bound in bounds]
    return replace(base, tiers=tuple(Tier(above_tokens=bound * 1_000, prices=prices) for bound, prices in tiers if prices))


def _priced(values: Mapping[str, object], suffix: str, base: Prices | None) -> Prices | None:
    """Return the prices under the names with this suffix; a price that only the base has grows as the input's does."""

    def usd(name: str) -> float | None:
        value = values.get(name + suffix)
        return float(value) * 1e6 if isinstance(value, int | float) and not isinstance(value, bool) else None

    def scaled(name: str, of_base: float | None) -> float | None:
        told = usd(name)
        if told is None and of_base is not None and base is not None and base.input and paid is not None:
            return of_base * paid / base.input
        return told

    paid, output = usd("input_cost_per_token"), usd("output_cost_per_token")
    if base is not None and output is None:
        output = base.output
    if paid is None or output is None:
        return None
    longer = next((price for name in _LONGER if (price := usd(name)) is not None), None)
    return Prices(
        input=paid,
        cached=scaled("cache_read_input_token_cost", base.cached if base else None),
        cache_write=scaled("cache_creation_input_token_cost", base.cache_write if base else None),
        output=output,
        cache_write_long=scaled("", base.cache_write_long if base else None) if longer is None else longer,
    )
