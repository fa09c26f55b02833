"""What Slurm says, as values; nothing in here knows of segment health, and nothing may live in this file."""
