"""The door `rest`: slurmrestd."""
