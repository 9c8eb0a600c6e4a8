"""Compaction strategies, as pure functions over sizes and groups."""
