"""Attention backends: each owns its KV layout, and what it needs to know of a batch."""
