"""The door `pyslurm`: libslurm, in a process of its own."""
