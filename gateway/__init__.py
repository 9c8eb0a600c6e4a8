"""contextplane: an OpenAI-compatible proxy that decides what a model call sees."""

__version__ = "0.1.0"
