"""A private, real Slurm on this machine, for the demo and the tests."""
