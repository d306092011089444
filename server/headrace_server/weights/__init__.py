"""Checkpoint files, read by tensor name. Knows no model."""
