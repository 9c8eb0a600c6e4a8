"""Provider caches as data."""
