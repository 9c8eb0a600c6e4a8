"""`kind: anthropic`: Anthropic's Messages, byte-exact, over the same transport as every provider.

`base_url` is the one that Anthropic's SDKs take, without `/v1`; with it is well too. The key goes as `x-api-key`.
"""

from dataclasses import replace

from gateway.providers.base import Endpoint
from gateway.providers.openai import OpenAIUpstream

VERSION = "2023-06-01"  # of the API, where the client names none; later ones refuse what older clients send
KEY_HEADER = "x-api-key"


def upstream(endpoint: Endpoint) -> OpenAIUpstream:
    """Return the adapter for one provider."""
    base = endpoint.base_url.rstrip("/")
    if not base.endswith("/v1"):
        endpoint = replace(endpoint, base_url=base + "/v1")
    return OpenAIUpstream(endpoint, key_header=KEY_HEADER, defaults=(("anthropic-version", VERSION),))
