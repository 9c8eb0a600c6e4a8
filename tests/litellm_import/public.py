"""The shapes of public LiteLLM configurations, as facts: which keys, prefixes and combinations each one uses.

Names, hosts and figures are ours. Each entry: where the shape was seen, the YAML, and the routes that it must give.
"""

SHAPES: dict[str, tuple[str, tuple[str, ...]]] = {
    "one model from the environment, stored models (terraform module)": ("""
model_list:
  - model_name: big
    litellm_params: {model: openai/gpt-5.6, api_key: os.environ/OPENAI_API_KEY}
general_settings: {master_key: os.environ/MASTER, database_url: os.environ/DATABASE_URL, set_verbose: false, json_logs: true}
""", ("big",)),
    "local tiers with cloud fallbacks, both kinds (self-hosting guide)": ("""
model_list:
  - {model_name: fast, litellm_params: {model: "ollama/qwen3:8b", api_base: "http://localhost:11434", rpm: 60, timeout: 30}}
  - {model_name: smart, litellm_params: {model: "ollama/qwen3:32b", api_base: "http://localhost:11434", rpm: 30, timeout: 120}}
  - {model_name: cloud, litellm_params: {model: openai/gpt-5.4-mini, api_key: os.environ/OPENAI_API_KEY, rpm: 200}}
router_settings: {routing_strategy: usage-based-routing, num_retries: 2, timeout: 30, allowed_fails: 3, cooldown_time: 60}
litellm_settings:
  fallbacks: [{fast: [smart, cloud]}, {smart: [cloud]}]
  context_window_fallbacks: [{fast: [smart, cloud]}, {smart: [cloud]}]
  num_retries: 2
  request_timeout: 30
""", ("fast", "smart", "cloud")),
    "two deployments of one name, weights by order (chinese tutorial)": ("""
model_list:
  - {model_name: gpt, litellm_params: {model: azure/primary, api_key: os.environ/AZURE_API_KEY, order: 1}}
  - {model_name: gpt, litellm_params: {model: azure/fallback, api_key: os.environ/AZURE_API_KEY_2, order: 2}}
  - {model_name: chat, litellm_params: {model: gpt-5.4-mini}, weight: 0.7}
  - {model_name: chat, litellm_params: {model: claude-sonnet-5-5}, weight: 0.3}
router_settings: {fallbacks: [{gpt: [chat]}], context_window_fallbacks: [{gpt: [missing]}], num_retries: 3, timeout: 60}
""", ("gpt", "chat")),
    "aliases as text, hidden and as a list (three repositories)": ("""
model_list:
  - {model_name: qwen, litellm_params: {model: openai/Qwen/Qwen3-72B, api_base: "http://localhost:8000/v1", api_key: dummy}}
router_settings:
  model_group_alias: {gpt-4: qwen, tier: {model: qwen, hidden: true}, agent: [qwen], several: [qwen, other], 4.1: qwen}
""", ("qwen",)),
    "bedrock in two regions and vertex under one name (coding-agent tutorial)": ("""
model_list:
  - model_name: claude-sonnet
    litellm_params: {model: bedrock/anthropic.claude-x, aws_access_key_id: os.environ/AWS_ACCESS_KEY_ID,
                     aws_secret_access_key: os.environ/AWS_SECRET_ACCESS_KEY, aws_region_name: us-east-1}
  - model_name: claude-sonnet
    litellm_params: {model: bedrock/anthropic.claude-x, aws_secret_access_key: SECRET-LITERAL-1, aws_region_name: us-west-2}
  - model_name: claude-sonnet
    litellm_params: {model: vertex_ai/claude-x, vertex_ai_project: os.environ/PROJECT, vertex_ai_location: us-east5}
""", ("claude-sonnet",)),
    "a load test's fake endpoint (load-test page)": ("""
model_list:
  - model_name: fake
    litellm_params: {model: openai/fake, api_key: fake-key, api_base: "https://fake.example/"}
""", ("fake",)),
    "only ollama, names with tags (install script)": ("""
model_list:
  - {model_name: "hermes3:3b", litellm_params: {model: "ollama/hermes3:3b", api_base: "http://localhost:11434"}}
  - {model_name: ollama/mistral, litellm_params: {model: ollama_chat/mistral, api_base: "http://ollama:11434"}}
""", ("hermes3:3b", "ollama/mistral")),
    "speech and embeddings beside chat (audio page)": ("""
model_list:
  - {model_name: chat, litellm_params: {model: openai/gpt-5.6, api_key: os.environ/OPENAI_API_KEY}}
  - {model_name: tts, litellm_params: {model: openai/tts-1, api_key: os.environ/OPENAI_API_KEY}, model_info: {mode: audio_speech}}
  - {model_name: emb, litellm_params: {model: mistral/embed}, model_info: {mode: embedding}}
""", ("chat",)),
    "prices and windows by hand (custom pricing page)": ("""
model_list:
  - model_name: own
    litellm_params: {model: hosted_vllm/own, api_base: os.environ/VLLM_BASE, input_cost_per_token: 0.0000025,
                     output_cost_per_token: "1e-5", cache_read_input_token_cost: 2.5e-7}
    model_info: {max_input_tokens: 32768, max_output_tokens: 4096, mode: chat, supports_function_calling: true, id: one}
""", ("own",)),
    "wildcards beside a named model (proxy repository's own example)": ("""
model_list:
  - {model_name: fake, litellm_params: {model: openai/mine, api_key: SECRET-LITERAL-2, api_base: "https://fake.example/"}}
  - {model_name: "anthropic/*", litellm_params: {model: "anthropic/*", api_key: os.environ/ANTHROPIC_API_KEY}}
  - {model_name: "bedrock-west/*", litellm_params: {model: "bedrock/*", aws_region_name: us-west-2}}
""", ("fake",)),
    "credentials by name (credential list)": ("""
model_list:
  - model_name: mini
    litellm_params: {model: azure/mini, litellm_credential_name: azure_default, rpm: 6}
    model_info: {supported_environments: [development, production]}
credential_list:
  - credential_name: azure_default
    credential_values: {api_key: SECRET-LITERAL-3, api_base: os.environ/AZURE_API_BASE, api_version: "2025-01-01"}
""", ("mini",)),
    "region and base model (azure load balancing)": ("""
model_list:
  - model_name: turbo
    litellm_params: {model: azure/eu, api_base: "https://eu.example/", api_key: SECRET-LITERAL-4, api_version: "2025-02-01", rpm: 6}
    model_info: {base_model: azure/gpt-5.6, id: "1"}
  - model_name: turbo
    litellm_params: {model: azure/ca, api_base: "https://ca.example/", api_key: SECRET-LITERAL-5, rpm: 1440, tpm: 90000}
router_settings: {redis_host: os.environ/REDIS_HOST, redis_password: SECRET-LITERAL-6, redis_port: 1992}
""", ("turbo",)),
    "limits outside the params (router page)": ("""
model_list:
  - {model_name: g, litellm_params: {model: gpt-5.6}, tpm: 100000, rpm: 1000}
  - {model_name: g, litellm_params: {model: azure/g, api_base: "https://a.example"}, tpm: 90000, rpm: 900}
router_settings: {routing_strategy: latency-based-routing, routing_strategy_args: {ttl: 60}, num_retries: 3, retry_after: 5}
""", ("g",)),
    "callbacks, cache and budgets (settings page)": ("""
model_list: [{model_name: m, litellm_params: {model: deepseek/deepseek-v4, api_key: os.environ/DEEPSEEK_API_KEY}}]
litellm_settings:
  success_callback: [langfuse, lunary]
  failure_callback: sentry
  callbacks: [prometheus, otel]
  cache: true
  cache_params: {type: redis, host: os.environ/REDIS_HOST, ttl: 600}
  drop_params: true
  set_verbose: true
  max_budget: 100
  budget_duration: 30d
general_settings: {master_key: SECRET-LITERAL-7, alerting: [slack], max_parallel_requests: 100, store_model_in_db: true}
""", ("m",)),
    "every fallback at once (reliability page)": ("""
model_list:
  - {model_name: a, litellm_params: {model: groq/llama, api_key: os.environ/GROQ_API_KEY, max_retries: 4}}
  - {model_name: b, litellm_params: {model: xai/grok-4.7}}
  - {model_name: c, litellm_params: {model: openrouter/some/model}}
litellm_settings:
  default_fallbacks: [c]
  content_policy_fallbacks: [{a: [b]}]
  fallbacks: [{a: [b]}, {b: [a]}, {"*": [c]}]
""", ("a", "b", "c")),
    "fallbacks written as a mapping (a re-implementation)": ("""
model_list:
  - {model_name: claude, litellm_params: {model: anthropic/claude-sonnet-5-5, max_tokens: 8192, temperature: 0.2}}
  - {model_name: gpt, litellm_params: {model: gpt-5.6, api_key: os.environ/OPENAI_API_KEY}}
router_settings: {fallbacks: {claude: [gpt]}}
""", ("claude", "gpt")),
    "keys in environment_variables (docker compose)": ("""
environment_variables: {OPENAI_API_KEY: SECRET-LITERAL-8, REDIS_PORT: "6379"}
model_list:
  - {model_name: m, litellm_params: {model: openai/m, organization: org-1,
                                    extra_headers: {x-team: blue, x-key: os.environ/TEAM_KEY}}}
""", ("m",)),
    "custom provider and a long model path (vLLM notes)": ("""
model_list:
  - {model_name: m, litellm_params: {model: meta/llama/3, custom_llm_provider: openai,
                                    api_base: "http://gpu:8000/v1", api_key: none}}
  - {model_name: n, litellm_params: {model: some/own-path, api_base: "http://gpu:8001/v1", stream_timeout: 60}}
""", ("m", "n")),
    "gemini, cohere and hugging face (many-providers example)": ("""
model_list:
  - {model_name: gem, litellm_params: {model: gemini/gemini-pro, api_key: os.environ/GEMINI_API_KEY}}
  - {model_name: com, litellm_params: {model: cohere/command, api_key: SECRET-LITERAL-9}}
  - {model_name: hf, litellm_params: {model: huggingface/zephyr, api_base: "http://hf.example:8001"}}
""", ("gem", "com", "hf")),
    "broken entries among good ones (issue reports)": ("""
model_list:
  - {model_name: good, litellm_params: {model: together_ai/good}}
  - {litellm_params: {model: gpt-5.6}}
  - {model_name: nobody, litellm_params: {model: somebody-unknown}}
  - {model_name: other, litellm_params: {model: nowhere/model}}
  - {model_name: needs-base, litellm_params: {model: hosted_vllm/m}}
  - just text
general_settings:
litellm_settings: {}
""", ("good",)),
    "a proxy behind a proxy, verbose JSON logs (platform chart)": ("""
model_list:
  - {model_name: up, litellm_params: {model: litellm_proxy/up, api_base: os.environ/UPSTREAM, api_key: os.environ/UPSTREAM_KEY}}
litellm_settings: {json_logs: true, telemetry: false, request_timeout: 600, ssl_verify: false, turn_off_message_logging: true}
router_settings: {redis_url: os.environ/REDIS_URL, enable_pre_call_checks: true}
""", ("up",)),
}  # fmt: skip
