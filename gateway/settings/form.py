"""The form of the settings file: which keys there are, of which type, in which bounds. The only user of pydantic.

Reads plain values and says what does not fit. Rules that look at more than one key are in `checks`. A key that was left
out stays unset, so the defaults here are for the schema; those in force are the values'.
"""

import re
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal, get_args

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, ValidationError

from gateway import yamlfile
from gateway.yamlfile import Bare, Document, Path


def _text(value: object) -> object:
    if isinstance(value, Bare):
        raise ValueError("bare")
    return value


def _form(pattern: str, meant: str) -> AfterValidator:
    def check(value: str) -> str:
        if not re.fullmatch(pattern, value):
            raise ValueError(meant)
        return value

    return AfterValidator(check)


def _compiles(value: str) -> str:
    try:
        re.compile(value)
    except re.error as error:
        raise ValueError(f"is no regular expression: {error}") from None
    return value


Text = Annotated[str, BeforeValidator(_text)]
Name = Annotated[
    Text, _form(r"[!-~](?:[ -~]*[!-~])?", "a name is printable ASCII, not empty, no space around it: it goes into headers")
]
Credential = Annotated[Text, _form(r"[!-~]+", "a key is printable ASCII, not empty, without spaces or line ends")]
HeaderName = Annotated[Text, _form(r"(?i)(?!(?:content-length|transfer-encoding|connection|host)$)[!#$%&'*+.^_`|~0-9a-z-]+",
                                   "no header that can be set here")]  # fmt: skip
HeaderValue = Annotated[Text, _form(r"[\t -~\x80-\xff]*", "a header's value has no control characters and is Latin-1")]
Origin = Annotated[Text, _form(r"\*|null|[a-z][a-z0-9+.-]*://[^/\s]+", "an origin is *, or scheme://host[:port] without a path")]
Hash = Annotated[Text, _form(r"[0-9a-fA-F]{64}", "64 hex digits, the SHA-256 of the key; `gateway keys new NAME` makes both")]
Pattern = Annotated[Text, AfterValidator(_compiles)]
Count = Annotated[int, Field(ge=1)]
Whole = Annotated[int, Field(ge=0)]
Seconds = Annotated[float, Field(gt=0)]
Amount = Annotated[float, Field(ge=0)]
Per = Literal["hour", "day", "month"]
CacheRule = Literal[
    "auto", "openai", "azure", "anthropic", "bedrock", "gemini", "deepseek", "xai", "mistral", "groq", "moonshot", "qwen",
    "qwen_explicit", "openrouter", "minimax", "zai", "together", "fireworks", "vllm", "sglang", "llamacpp", "ollama", "prefix",
    "none",
]  # fmt: skip
OnFailure = Literal["closed", "spill", "open"]


class Form(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, allow_inf_nan=False, populate_by_name=True)


class ServerForm(Form):
    host: Name = "127.0.0.1"
    port: Annotated[int, Field(ge=0, le=65_535)] = 4100
    max_body_bytes: Count = 33_554_432
    shutdown_grace_s: Amount = 30
    cors_origins: list[Origin] = []
    keepalive_s: Amount = 0
    max_inflight: Count = 1_000
    max_inflight_bytes: Count = 268_435_456


class SpendForm(Form):
    usd: Amount
    per: Per


class TokensForm(Form):
    limit: Whole
    per: Per


class LimitsForm(Form):
    spend: SpendForm | None = None
    tokens: TokensForm | None = None
    requests_per_minute: Count | None = None
    tokens_per_minute: Count | None = None
    max_parallel: Count | None = None


class KeyForm(Form):
    name: Name
    sha256: Hash
    routes: Annotated[list[Name], Field(min_length=1)] = ["*"]
    tenant: Text = ""
    audience: list[Text] = []
    budget: LimitsForm | None = None


class AuthForm(Form):
    admin_key: Credential | None = None
    keys: list[KeyForm] = []


class RetentionForm(Form):
    max_age_s: Whole = 2_592_000
    max_bytes: Whole = 50_000_000_000
    max_entries: Whole = 0


class LedgerForm(Form):
    url: Text = "sqlite:gateway.db"
    durability: Literal["appended", "fsynced", "replicated"] = "appended"
    on_failure: OnFailure = "closed"
    timeout_s: Seconds = 2
    pool: Count = 16
    retention: RetentionForm = RetentionForm()
    encryption_key: Credential | None = None


class TimeoutForm(Form):
    connect_s: Seconds = 5
    first_byte_s: Seconds = 120
    idle_s: Seconds = 120
    total_s: Seconds = 900


class CacheForm(Form):
    rule: CacheRule = "auto"
    minimum_tokens: Whole | None = None
    step_tokens: Count | None = None
    look_back: Whole | None = None
    maximum_marks: Annotated[int, Field(ge=0, le=4)] | None = None
    lifetime_s: Seconds | None = None
    long_lifetime_s: Seconds | None = None
    read: Amount | None = None
    write: Amount | None = None
    write_long: Amount | None = None


def _named(value: object) -> object:
    """A name alone is the rule of that name."""
    return {"rule": value} if isinstance(value, str) else value


Cache = Annotated[CacheForm, BeforeValidator(_named, json_schema_input_type=CacheRule | CacheForm)]


class ProviderForm(Form):
    kind: Literal["openai", "anthropic", "litellm"] = "openai"
    base_url: Text | None = None
    api_key: Credential | None = None
    headers: dict[HeaderName, HeaderValue] = {}
    query: dict[Text, Text] = {}
    timeout: TimeoutForm = TimeoutForm()
    drop_fields: list[Text] = []
    rename_fields: dict[Text, Text] = {}
    developer_role: bool = True
    cache: Cache = CacheForm()
    litellm_provider: Text = ""
    options: dict[Text, Any] = {}


class PriceForm(Form):
    input: Amount
    cached: Amount | None = None
    cache_write: Amount | None = None
    cache_write_long: Amount | None = None
    output: Amount = 0.0


class LongContextForm(PriceForm):
    above_tokens: Whole


class PricesForm(PriceForm):
    long_context: list[LongContextForm] = []


class TargetForm(Form):
    provider: Name | None = None
    model: Name | None = None
    route: Name | None = None
    window_tokens: Count | None = None
    output_limit_tokens: Count | None = None
    tokenizer: Name | None = None
    safety: Annotated[float, Field(gt=0)] = 1.0
    prices: PricesForm | None = None


class SectionsForm(Form):
    tools: Whole | None = None
    memory: Whole | None = None
    history: Whole | None = None


class BudgetForm(LimitsForm):
    input_tokens: Count | None = None
    output_reserve_tokens: Whole | None = None
    margin: Annotated[float, Field(ge=0, lt=1)] = 0.02
    output_over_window: Literal["refuse", "shrink"] = "refuse"
    sections: SectionsForm | None = None


class ModelForm(Form):
    provider: Name
    model: Name


class CompactionForm(Form):
    strategy: Literal["sliding_window", "running_summary", "semantic_truncation", "off"] = "sliding_window"
    low_water: Annotated[float, Field(gt=0, lt=1)] = 0.5
    protect_first: Whole = 1
    protect_last_tokens: Whole = 16_000
    prune_tool_outputs: bool = True
    summarizer: ModelForm | None = None
    summary_max_tokens: Count = 4_000
    timeout_s: Seconds = 20
    recall_tool: bool = False


class LayoutForm(Form):
    volatile: Literal["relocate", "freeze", "observe"] = "relocate"
    volatile_patterns: list[Pattern] = []
    tools: Literal["sorted", "as_sent"] = "sorted"
    cache_marks: Literal["auto", "off"] = "auto"
    cache_ttl: Literal["5m", "1h"] = "5m"
    affinity: bool = True


class FileForm(Form):
    name: Name
    file: Text


class PartsForm(Form):
    persona: Text = ""
    variables: dict[Text, Any] = {}
    context: list[FileForm] = []
    skills: list[Any] = []
    operator_prompt: Text = ""
    few_shot: list[Any] = []
    response_format: dict[Text, Any] | None = None
    sampling: dict[Text, Any] = {}
    reasoning: dict[Text, Any] = {}
    extensions: list[Any] = []
    reminders: list[Any] = []


class ComposeForm(PartsForm):
    roles: dict[Name, PartsForm] = {}


class RetryForm(Form):
    attempts: Count = 2
    max_wait_s: Amount = 10
    total_attempts: Count = 4


class CooldownForm(Form):
    failures: Count = 3
    seconds: Amount = 30


class SnapshotsForm(Form):
    on_failure: OnFailure = "closed"


class RouteForm(Form):
    name: Name
    models: Annotated[list[Text], Field(min_length=1)] | None = None
    targets: Annotated[list[TargetForm], Field(min_length=1)]
    budget: BudgetForm = BudgetForm()
    compaction: CompactionForm = CompactionForm()
    layout: LayoutForm = LayoutForm()
    compose: ComposeForm = ComposeForm()
    retry: RetryForm = RetryForm()
    cooldown: CooldownForm = CooldownForm()
    snapshots: SnapshotsForm = SnapshotsForm()


class PassthroughForm(Form):
    provider: Name


class AlertsForm(Form):
    url: Text
    at: Annotated[list[Annotated[float, Field(gt=0, le=1)]], Field(min_length=1, max_length=20)] = [0.5, 0.8, 1.0]
    timeout_s: Annotated[float, Field(gt=0, le=60)] = 5


class BudgetsForm(Form):
    lease_s: Annotated[float, Field(ge=1)] = 60
    alerts: AlertsForm | None = None


class TelemetryForm(Form):
    prometheus: bool = True
    otlp_endpoint: Text = ""


class LogForm(Form):
    level: Literal["debug", "info", "warning", "error"] = "info"
    format: Literal["auto", "pretty", "json"] = "auto"


class SettingsForm(Form):
    server: ServerForm = ServerForm()
    auth: AuthForm = AuthForm()
    ledger: LedgerForm = LedgerForm()
    providers: Annotated[dict[Name, ProviderForm], Field(min_length=1)]
    routes: Annotated[list[RouteForm], Field(min_length=1)]
    passthrough: PassthroughForm | None = None
    budgets: BudgetsForm = BudgetsForm()
    telemetry: TelemetryForm = TelemetryForm()
    log: LogForm = LogForm()


def schema() -> dict[str, Any]:
    """Return the JSON Schema of the YAML, for editors. Keys that this version refuses are in it: they are known."""
    made = SettingsForm.model_json_schema()
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        **made,
        "title": "contextplane settings",
        "patternProperties": {"^x-": {"description": "anything: a place for anchors"}},
    }


def fit(document: Document) -> SettingsForm | None:
    """Return the document as a form; None when it does not fit, and then the document has every problem noted."""
    try:
        return SettingsForm.model_validate(document.root)
    except ValidationError as error:
        for each in error.errors(include_url=False, include_input=True):
            _note(document, each["type"], each["loc"], each["input"], each.get("ctx", {}), each["msg"])
        return None


def _note(document: Document, kind: str, loc: Path, given: object, context: Mapping[str, Any], said: str) -> None:
    at_key = loc[-1:] == ("[key]",)
    path = loc[:-1] if at_key else loc
    if document.troubled(path):
        return
    if kind == "extra_forbidden":
        accepted = accepted_keys(path[:-1])
        message = f"unknown key; accepted here: {', '.join(accepted)}{yamlfile.near(str(path[-1]), accepted)}"
        document.add(path, message, at_key=True)
    elif kind == "missing":
        document.add(path, "is missing, and is required")
    elif kind == "literal_error":
        accepted = re.findall(r"'([^']*)'", str(context["expected"]))
        path = path if path in document.values else path[:-1]  # a name that stands for a mapping: see `_named`
        message = f"is not one of {', '.join(accepted)}{yamlfile.near(str(given), accepted)}"
        document.add(path, message, show=True)
    elif kind == "string_type" or (kind == "value_error" and str(context.get("error")) == "bare"):
        document.add(path, yamlfile.quote(None if at_key else document.values.get(path), given), at_key=at_key, show=True)
    else:
        document.add(path, _MEANT.get(kind) or _in_words(kind, context, said), at_key=at_key, show=not at_key)


_MEANT = {
    "int_type": "must be a whole number",
    "float_type": "must be a number",
    "finite_number": "must be a finite number",
    "bool_type": "must be true or false",
    "list_type": "must be a list",
    "dict_type": "must be a mapping of keys and values",
    "model_type": "must be a mapping of keys and values",
    "model_attributes_type": "must be a mapping of keys and values",
    "too_short": "must hold at least one entry",
}


def _in_words(kind: str, context: Mapping[str, Any], said: str) -> str:
    bounds = {"greater_than": ("gt", "greater than"), "greater_than_equal": ("ge", "at least"),
              "less_than": ("lt", "less than"), "less_than_equal": ("le", "at most")}  # fmt: skip
    if kind in bounds:
        name, words = bounds[kind]
        return f"must be {words} {context[name]:g}"
    return str(context["error"]) if kind == "value_error" else said


def accepted_keys(path: Path) -> Sequence[str]:
    """Return the keys that the form accepts at a path, in its order; empty where it takes any, or no such place is."""
    found: Any = SettingsForm
    for part in path:
        found = _below(found, part)
    return tuple(found.model_fields) if _is_form(found) else ()


def _below(kind: Any, part: str | int) -> Any:
    if _is_form(kind):
        known = kind.model_fields.get(str(part))
        return _bare(known.annotation) if known else None
    arguments = get_args(kind)
    return _bare(arguments[-1]) if arguments else None


def _bare(kind: Any) -> Any:
    """Return a type without its `| None` and its annotations."""
    while (arguments := get_args(kind)) and not isinstance(kind, type) and getattr(kind, "__origin__", None) not in (list, dict):
        kind = next(each for each in arguments if each is not type(None))
    return kind


def _is_form(kind: Any) -> bool:
    return isinstance(kind, type) and issubclass(kind, Form)
