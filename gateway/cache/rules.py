"""How each provider caches prompts and reports it, as one table. Facts only: what is done with them stands elsewhere.

Source of every row: reference, provider-caching (the section is named) and usage-fields. What a row's `uncertain` names
is measured by third parties or contradicted by another source; settings may override each figure (`providers.*.cache`).
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from enum import StrEnum

from gateway.cache.usage import Wire


class Trigger(StrEnum):
    """What makes a provider keep a prefix."""

    AUTOMATIC = "automatic"  # the longest common prefix, cut to whole steps
    BOUNDARIES = "boundaries"  # message ends and explicit breakpoints, exact
    MARKS = "marks"  # only where a mark stands
    NONE = "none"


class Mark(StrEnum):
    """How a mark is spelled."""

    CACHE_CONTROL = "cache_control"  # on a tool, a system block, a content part
    BREAKPOINT = "prompt_cache_breakpoint"  # on a content part


class Stable(StrEnum):
    """What a routing key must be stable by."""

    LINEAGE = "lineage"  # one conversation: requests of it go to the machine that holds its prefix
    PREFIX = "prefix"  # one stable head: a key for each conversation would keep those apart that share it


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """One provider's cache. Sizes in tokens, times in seconds, prices relative to an uncached input token.

    `minimum_tokens` is the smallest prefix kept, `minimums` the exceptions, by regular expression over the model's bare
    name, the first that matches. `step_tokens` is what the cached share is rounded down to. `look_back` is how many
    positions a mark's read (or a boundary's) goes back. `lifetime_s` is how long a prefix lives unused, `long_lifetime_s`
    the longer one that may be asked for. `read` and `write` are prices, `reads` exceptions like `minimums`. `wires` are
    the formats of its answers. `unasked`: cached tokens are reported without a switch at the server. `partitions` are
    request fields whose values keep caches apart, `breakers` those whose change loses every prefix.
    """

    name: str
    trigger: Trigger
    source: str
    minimum_tokens: int = 1_024
    minimums: tuple[tuple[str, int], ...] = ()
    step_tokens: int = 1
    order: tuple[str, ...] = ("tools", "system", "messages")
    mark: Mark | None = None
    maximum_marks: int = 0
    look_back: int = 0
    lifetime_s: float = 300.0
    long_lifetime_s: float | None = None
    refreshed: bool = True
    read: float | None = None
    reads: tuple[tuple[str, float], ...] = ()
    write: float = 1.0
    write_long: float | None = None
    wires: tuple[Wire, ...] = (Wire.CHAT,)
    unasked: bool = True
    key_field: str | None = None
    header: str | None = None
    stable: Stable | None = None
    partitions: tuple[str, ...] = ()
    breakers: tuple[str, ...] = ()
    uncertain: tuple[str, ...] = ()

    def at(self, model: str) -> "Rule":
        """Return the rule with the exceptions of one model in place."""
        bare = model.rsplit("/", 1)[-1].lower()
        minimum = next((tokens for pattern, tokens in self.minimums if re.search(pattern, bare)), self.minimum_tokens)
        read = next((price for pattern, price in self.reads if re.search(pattern, bare)), self.read)
        return replace(self, minimum_tokens=minimum, read=read, minimums=(), reads=())


_OPENAI_BREAKERS = ("response_format", "text", "parallel_tool_calls", "reasoning_effort", "reasoning", "verbosity", "service_tier")
_CLAUDE_MINIMUMS = (
    (r"opus-4-[56]|haiku-4-5", 4_096),
    (r"opus-4-7|haiku-3-5|3-5-haiku", 2_048),
    (r"opus-4-8|sonnet-5(?!-5)|sonnet-4|opus-4", 1_024),
    (r"fable-5|mythos-5|opus-5|sonnet-5-5|haiku-5-5", 512),
)
_CLAUDE_READS = ((r"opus-5-5|sonnet-5-5", 0.05), (r"fable-5-1", 0.025))

_ANTHROPIC = Rule(
    name="anthropic",
    trigger=Trigger.MARKS,
    source="provider-caching, section 4",
    minimums=_CLAUDE_MINIMUMS,
    mark=Mark.CACHE_CONTROL,
    maximum_marks=4,
    look_back=20,
    lifetime_s=300,
    long_lifetime_s=3_600,
    read=0.1,
    reads=_CLAUDE_READS,
    write=1.25,
    write_long=2.0,
    wires=(Wire.MESSAGES, Wire.CHAT),
    breakers=("tool_choice", "thinking", "output_config", "speed"),
    uncertain=("reads",),
)
_OPENAI = Rule(
    name="openai",
    trigger=Trigger.BOUNDARIES,
    source="provider-caching, section 2 (GPT-5.6 and later)",
    mark=Mark.BREAKPOINT,
    maximum_marks=3,  # of four writes, the implicit boundary takes one
    look_back=20,
    lifetime_s=1_800,
    long_lifetime_s=43_200,
    read=0.1,
    reads=((r"gpt-6\.1-(?:sol|terra)", 0.05),),
    write=1.25,
    write_long=2.5,
    wires=(Wire.CHAT, Wire.RESPONSES),
    key_field="prompt_cache_key",
    stable=Stable.PREFIX,
    breakers=_OPENAI_BREAKERS,
    uncertain=("look_back",),
)
_OPENAI_OLDER = Rule(
    name="openai_older",
    trigger=Trigger.AUTOMATIC,
    source="provider-caching, section 2 (before GPT-5.6)",
    step_tokens=128,
    lifetime_s=300,
    long_lifetime_s=86_400,
    read=0.1,
    reads=((r"^gpt-4o|^o1|^chatgpt-4o", 0.5), (r"^gpt-4\.1|^o3|^o4", 0.25)),
    wires=(Wire.CHAT, Wire.RESPONSES),
    key_field="prompt_cache_key",
    stable=Stable.PREFIX,
    breakers=_OPENAI_BREAKERS,
    uncertain=("lifetime_s",),  # 5 to 10 minutes idle, up to an hour; 24 h where the organisation retains data
)
_OPENAI_5_5 = replace(_OPENAI_OLDER, name="openai_5_5", step_tokens=2_048, lifetime_s=86_400)
_PREFIX = Rule(
    name="prefix",
    trigger=Trigger.AUTOMATIC,
    source="no provider's: what any cache of rendered prefixes does",
    uncertain=("minimum_tokens", "lifetime_s"),
)
_LOCAL = replace(_PREFIX, minimum_tokens=1, lifetime_s=3_600, source="provider-caching, section 14", uncertain=("lifetime_s",))

TABLE: Mapping[str, Rule] = {
    each.name: each
    for each in (
        _ANTHROPIC,
        _OPENAI,
        _OPENAI_OLDER,
        _OPENAI_5_5,
        replace(_OPENAI, name="azure", source="provider-caching, section 3", long_lifetime_s=None, write_long=None),
        replace(_OPENAI_OLDER, name="azure_older", source="provider-caching, section 3"),
        replace(
            _ANTHROPIC,
            name="bedrock",
            source="provider-caching, section 5",
            minimums=((r"opus-4-7", 4_096), *_CLAUDE_MINIMUMS),  # sources differ: the larger
            wires=(Wire.CONVERSE, Wire.MESSAGES, Wire.CHAT),
            uncertain=("minimums", "look_back"),
        ),
        Rule(
            name="gemini",
            trigger=Trigger.AUTOMATIC,
            source="provider-caching, section 6 (implicit)",
            minimum_tokens=4_096,
            minimums=((r"gemini-2\.5", 2_048),),
            read=0.1,
            reads=((r"gemini-2\.0", 0.25),),
            wires=(Wire.GEMINI, Wire.CHAT),
            uncertain=("minimums", "lifetime_s", "order", "step_tokens"),
        ),
        Rule(
            name="deepseek",
            trigger=Trigger.AUTOMATIC,
            source="provider-caching, section 7",
            minimum_tokens=64,
            step_tokens=64,
            lifetime_s=7_200,
            read=0.02,
            reads=((r"v4-pro", 0.033),),
            partitions=("user_id",),
            uncertain=("minimum_tokens", "step_tokens", "lifetime_s"),
        ),
        Rule(
            name="xai",
            trigger=Trigger.AUTOMATIC,
            source="provider-caching, section 8",
            step_tokens=128,
            order=("messages",),
            read=0.25,
            reads=((r"grok-4\.5", 0.15), (r"grok-4\.3", 0.16)),
            wires=(Wire.CHAT, Wire.RESPONSES),
            header="x-grok-conv-id",
            stable=Stable.LINEAGE,
            uncertain=("minimum_tokens", "step_tokens", "lifetime_s"),
        ),
        Rule(
            name="mistral",
            trigger=Trigger.AUTOMATIC,
            source="provider-caching, section 9",
            minimum_tokens=64,
            step_tokens=64,
            order=("messages",),
            read=0.1,
            unasked=False,
            key_field="prompt_cache_key",
            stable=Stable.LINEAGE,
            uncertain=("lifetime_s",),
        ),
        Rule(
            name="groq",
            trigger=Trigger.AUTOMATIC,
            source="provider-caching, section 10",
            order=("system", "tools", "messages"),
            lifetime_s=7_200,
            read=0.5,
            uncertain=("minimum_tokens", "step_tokens", "order"),
        ),
        Rule(
            name="moonshot",
            trigger=Trigger.AUTOMATIC,
            source="provider-caching, section 11",
            minimum_tokens=256,
            step_tokens=256,
            read=0.1,
            reads=((r"kimi-k2", 0.2),),
            uncertain=("minimum_tokens", "step_tokens", "lifetime_s", "reads"),
        ),
        Rule(
            name="qwen",
            trigger=Trigger.AUTOMATIC,
            source="provider-caching, section 12 (implicit)",
            order=("messages",),
            read=0.2,
            reads=((r"qwen3\.8", 0.125),),
            uncertain=("step_tokens", "lifetime_s"),
        ),
        Rule(
            name="qwen_explicit",
            trigger=Trigger.MARKS,
            source="provider-caching, section 12 (explicit)",
            mark=Mark.CACHE_CONTROL,
            maximum_marks=4,
            look_back=20,
            lifetime_s=300,
            read=0.1,
            write=1.25,
        ),
        replace(_PREFIX, name="minimax", minimum_tokens=512, source="provider-caching, section 15", uncertain=("trigger",)),
        replace(_PREFIX, name="zai", read=0.2, source="provider-caching, section 15", uncertain=("read", "minimum_tokens")),
        replace(_PREFIX, name="together", source="provider-caching, section 15"),
        replace(_PREFIX, name="fireworks", source="provider-caching, section 15"),
        replace(
            _LOCAL, name="vllm", minimum_tokens=16, step_tokens=16, unasked=False, partitions=("cache_salt",), stable=Stable.LINEAGE
        ),
        replace(_LOCAL, name="sglang", unasked=False, stable=Stable.LINEAGE, uncertain=("step_tokens", "lifetime_s")),
        replace(_LOCAL, name="llamacpp"),
        replace(_LOCAL, name="ollama", unasked=False),
        _PREFIX,
        Rule(name="none", trigger=Trigger.NONE, source="settings", minimum_tokens=0),
    )
}

_HOSTS = (
    (r"(?:^|\.)openai\.com$", "openai"),
    (r"\.openai\.azure\.com$|\.azure\.com$", "azure"),
    (r"(?:^|\.)anthropic\.com$", "anthropic"),
    (r"(?:^|\.)googleapis\.com$", "gemini"),
    (r"(?:^|\.)deepseek\.com$", "deepseek"),
    (r"(?:^|\.)x\.ai$", "xai"),
    (r"(?:^|\.)mistral\.ai$", "mistral"),
    (r"(?:^|\.)groq\.com$", "groq"),
    (r"(?:^|\.)moonshot\.(?:ai|cn)$", "moonshot"),
    (r"(?:^|\.)aliyuncs\.com$", "qwen"),
    (r"(?:^|\.)openrouter\.ai$", "openrouter"),
    (r"(?:^|\.)together\.(?:xyz|ai)$", "together"),
    (r"(?:^|\.)fireworks\.ai$", "fireworks"),
    (r"(?:^|\.)minimax(?:i)?\.(?:io|chat|com)$", "minimax"),
    (r"(?:^|\.)z\.ai$|(?:^|\.)bigmodel\.cn$", "zai"),
    (r"(?:^|\.)amazonaws\.com$", "bedrock"),
)
_LITELLM = {"vertex_ai": "gemini", "gemini": "gemini", "bedrock": "bedrock", "azure": "azure", "dashscope": "qwen"}
_BOUNDARY_MODELS = re.compile(r"gpt-(?:5\.(?:[6-9]|1\d)|[6-9](?!\d))")
_VENDORS = {"anthropic": "anthropic", "openai": "openai", "google": "gemini", "deepseek": "deepseek", "x-ai": "xai",
            "mistralai": "mistral", "moonshotai": "moonshot", "qwen": "qwen", "z-ai": "zai"}  # fmt: skip
NAMES = ("auto", "openrouter", *TABLE)


def resolve(name: str, *, host: str, model: str, kind: str = "openai", litellm_provider: str = "") -> Rule:
    """Return the rule of one target, its model's exceptions in place.

    `name` is a name of `TABLE`, `openrouter`, or `auto`: by the adapter, then by the host of the provider's address. An
    unknown host has the rule `prefix`, which promises little. `openai` and `azure` are two generations, told by the model.
    """
    if name == "auto":
        name = _by_place(host, kind, litellm_provider, model)
    if name == "openrouter":
        vendor, _, bare = model.rpartition("/")
        upstream = resolve(_VENDORS.get(vendor.rsplit("/", 1)[-1], "prefix"), host="", model=bare)
        return replace(
            upstream, name="openrouter", header="x-session-id", key_field=None, stable=Stable.LINEAGE, wires=(Wire.CHAT,),
            source=f"provider-caching, section 13, upstream: {upstream.name}",
        )  # fmt: skip
    if name in ("openai", "azure") and not _BOUNDARY_MODELS.search(model.rsplit("/", 1)[-1].lower()):
        name += "_older"
        if name == "openai_older" and model.rsplit("/", 1)[-1].startswith("gpt-5.5"):
            name = "openai_5_5"
    return TABLE[name].at(model)


def _by_place(host: str, kind: str, litellm_provider: str, model: str) -> str:
    if kind == "anthropic":
        return "anthropic"
    if kind == "litellm":
        if litellm_provider in ("bedrock", "vertex_ai") and "claude" not in model and "anthropic" not in model:
            return "gemini" if litellm_provider == "vertex_ai" else "prefix"
        if "claude" in model:
            return "bedrock" if litellm_provider == "bedrock" else "anthropic"
        return _LITELLM.get(litellm_provider, litellm_provider if litellm_provider in TABLE else "prefix")
    return next((name for pattern, name in _HOSTS if re.search(pattern, host.lower())), "prefix")


OVERRIDES = (
    "minimum_tokens",
    "step_tokens",
    "look_back",
    "maximum_marks",
    "lifetime_s",
    "long_lifetime_s",
    "read",
    "write",
    "write_long",
)


def overridden(rule: Rule, figures: Mapping[str, float | None]) -> Rule:
    """Return the rule with the figures of the settings file in their places; None leaves the table's."""
    kinds = {each.name: each for each in fields(rule)}
    given = {name: value for name, value in figures.items() if value is not None and name in kinds}
    return replace(rule, **given, uncertain=tuple(each for each in rule.uncertain if each not in given))  # type: ignore[arg-type]
