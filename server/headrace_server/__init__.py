"""Headrace's shard: holds the tensors of one model and runs the steps that the router plans.

Reading order: `main` (the command line) → `serve` (one process's life) → `service` and `session` (the protocol) →
`runner` (one step) → `batch`, `rows`, `kv_cache`, `sampling`, `models` → `layers` → `attention`, `quantization`.
Imports go that way only; tests/test_import_direction.py holds the order.
"""

__version__ = "0.1.0"
