"""The pure core: values in, values out. No clock, no randomness, no network, no logging, no async."""
