"""Slurm's JSON, of every version, whoever wrote it: its commands, slurmrestd, or a file."""
