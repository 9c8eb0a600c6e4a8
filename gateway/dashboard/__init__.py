"""The cache-hit dashboard."""
