"""`POST /v1/messages` and `/v1/messages/count_tokens`: Anthropic's dialect on the same path as chat completions."""

from gateway.api.chat import ChatCompletions
from gateway.counting import count_tokens
from gateway.dialects.messages import MESSAGES
from gateway.pipeline import Answer, Call


class Messages(ChatCompletions):
    """The endpoint of Anthropic's Messages."""

    dialect = MESSAGES


class CountTokens(Messages):
    """What a request would cost in input tokens; nothing is planned or kept of it but that it was asked."""

    async def complete(self, call: Call, facts: dict[str, str]) -> Answer:
        return await count_tokens(self._gateway, call, facts)
