"""Logits → token ids. docs/sampling.md says in which order, and why."""
