"""Sampling with torch, wherever the logits are: one file per stage of docs/sampling.md."""
