"""The doors `text` and `json`: Slurm's own commands, and who the cluster is that they ask."""
