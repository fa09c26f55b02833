"""nvhcd's own checks (`healthcheck_path: builtin:...`), each of which can say that it does not know."""

NAMES = ("slurm", "storage", "paths", "nhc", "segment")
"""What there is."""
