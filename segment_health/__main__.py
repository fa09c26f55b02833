"""`python -P -m segment_health`, for where the console script is not on PATH."""

from segment_health.cli import main

main(prog_name="segment-health")
