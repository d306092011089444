"""The parts that models are made of. Splitting over ranks belongs here, and nowhere else."""
