"""Architectures: what config.json means and what the weights are called, nothing else."""
