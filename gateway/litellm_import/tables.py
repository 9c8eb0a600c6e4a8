"""What LiteLLM's names are called here, as tables: its providers, and the keys whose fate does not depend on their value."""

from collections.abc import Mapping
from enum import StrEnum


class Fate(StrEnum):
    KEPT = "kept"
    CHANGED = "changed"
    REFUSED = "refused"


# LiteLLM's prefix of a model: our provider's address, and the variable that LiteLLM reads its key from ("" for none).
SERVERS: Mapping[str, tuple[str, str]] = {
    "openai": ("https://api.openai.com/v1", "OPENAI_API_KEY"),
    "deepseek": ("https://api.deepseek.com/v1", "DEEPSEEK_API_KEY"),
    "groq": ("https://api.groq.com/openai/v1", "GROQ_API_KEY"),
    "mistral": ("https://api.mistral.ai/v1", "MISTRAL_API_KEY"),
    "xai": ("https://api.x.ai/v1", "XAI_API_KEY"),
    "openrouter": ("https://openrouter.ai/api/v1", "OPENROUTER_API_KEY"),
    "moonshot": ("https://api.moonshot.ai/v1", "MOONSHOT_API_KEY"),
    "together_ai": ("https://api.together.xyz/v1", "TOGETHERAI_API_KEY"),
    "fireworks_ai": ("https://api.fireworks.ai/inference/v1", "FIREWORKS_API_KEY"),
    "perplexity": ("https://api.perplexity.ai", "PERPLEXITYAI_API_KEY"),
    "cerebras": ("https://api.cerebras.ai/v1", "CEREBRAS_API_KEY"),
    "nvidia_nim": ("https://integrate.api.nvidia.com/v1", "NVIDIA_NIM_API_KEY"),
    "sambanova": ("https://api.sambanova.ai/v1", "SAMBANOVA_API_KEY"),
    "dashscope": ("https://dashscope-intl.aliyuncs.com/compatible-mode/v1", "DASHSCOPE_API_KEY"),
    "hosted_vllm": ("", ""),
    "vllm": ("", ""),
    "openai_like": ("", ""),
    "custom_openai": ("", ""),
    "litellm_proxy": ("", "LITELLM_PROXY_API_KEY"),
    "lm_studio": ("http://127.0.0.1:1234/v1", ""),
    "llamafile": ("http://127.0.0.1:8080/v1", ""),
    "ollama": ("http://127.0.0.1:11434", ""),
    "ollama_chat": ("http://127.0.0.1:11434", ""),
}
NATIVE = {"anthropic": ("https://api.anthropic.com", "ANTHROPIC_API_KEY")}
AZURE = ("azure", "azure_text")
# Prefixes that LiteLLM translates, and that go through it with us as well.
TRANSLATED = frozenset(
    (
        "azure_ai", "bedrock", "bedrock_converse", "vertex_ai", "vertex_ai_beta", "gemini", "cohere", "cohere_chat",
        "huggingface", "sagemaker", "sagemaker_chat", "replicate", "watsonx", "databricks", "cloudflare", "ai21",
        "ai21_chat", "nlp_cloud", "github", "github_copilot", "predibase", "triton", "oci", "snowflake", "deepinfra",
        "anyscale", "friendliai", "galadriel", "volcengine", "novita", "nebius", "hyperbolic", "lambda_ai",
        "featherless_ai", "voyage", "jina_ai", "infinity", "codestral", "text-completion-openai",
    )
)  # fmt: skip
GUESSED = (("anthropic", r"claude-"), ("openai", r"gpt-|o[134]|chatgpt-|text-embedding-|dall-e|whisper|tts-|codex|ft:"))
NO_KEY = frozenset(
    ("", "none", "na", "n/a", "dummy", "fake", "anything", "empty", "not-needed", "ollama", "sk-none", "fake-key", "no-key")
)
SAMPLING = ("temperature", "top_p", "top_k", "presence_penalty", "frequency_penalty", "seed", "stop", "max_tokens",
            "max_completion_tokens", "reasoning_effort", "parallel_tool_calls")  # fmt: skip
PRICES = (("input_cost_per_token", "input"), ("cache_read_input_token_cost", "cached"),
          ("cache_creation_input_token_cost", "cache_write"), ("output_cost_per_token", "output"))  # fmt: skip
# Keys whose answer does not depend on their value. What is in neither table nor code is refused as unknown.
SAID: Mapping[str, tuple[Fate, str]] = {
    "router_settings.enable_pre_call_checks": (Fate.KEPT, "always so here: each target is planned against its own window"),
    "router_settings.routing_strategy": (Fate.CHANGED, "targets are tried in order, the one that has the cache first"),
    "router_settings.routing_strategy_args": (Fate.REFUSED, "targets are tried in order"),
    "router_settings.retry_after": (Fate.CHANGED, "the wait is the provider's retry-after, else 0.5 s doubled"),
    "router_settings.cache_responses": (Fate.REFUSED, "answers are not cached, prompts are laid out for the provider's cache"),
    "litellm_settings.cache": (Fate.REFUSED, "answers are not cached, prompts are laid out for the provider's cache"),
    "litellm_settings.cache_params": (Fate.REFUSED, "answers are not cached"),
    "litellm_settings.telemetry": (Fate.KEPT, "nothing is sent anywhere by itself"),
    "litellm_settings.drop_params": (
        Fate.CHANGED, "name what an upstream refuses in its drop_fields; nothing is dropped silently"),
    "litellm_settings.modify_params": (Fate.REFUSED, "requests are only changed as the route's policy says"),
    "litellm_settings.max_budget": (Fate.CHANGED, "give each route or key a budget.spend"),
    "litellm_settings.budget_duration": (Fate.CHANGED, "give each route or key a budget.spend"),
    "litellm_settings.turn_off_message_logging": (Fate.REFUSED, "no record, no call: see ledger.encryption_key and retention"),
    "litellm_settings.redact_user_api_key_info": (Fate.KEPT, "keys are never logged"),
    "litellm_settings.force_ipv4": (Fate.REFUSED, "addresses are taken as the resolver gives them"),
    "litellm_settings.ssl_verify": (Fate.REFUSED, "certificates are always checked; give the host's own CA with SSL_CERT_FILE"),
    "litellm_settings.content_policy_fallbacks": (Fate.REFUSED, "a refusal of content is the answer; it is passed on"),
    "general_settings.database_url": (Fate.REFUSED, "keys stand in the settings: make them with `gateway keys new NAME`"),
    "general_settings.store_model_in_db": (Fate.REFUSED, "routes stand in the settings, which are reloaded when the file changes"),
    "general_settings.disable_spend_logs": (Fate.REFUSED, "no record, no call"),
    "general_settings.alerting": (Fate.CHANGED, "use deploy/prometheus/alerts.yml, or a budget's webhook"),
    "general_settings.health_check_interval": (Fate.REFUSED, "targets are judged by the calls they answer"),
    "general_settings.background_health_checks": (Fate.REFUSED, "targets are judged by the calls they answer"),
}  # fmt: skip
