"""Asks an attribution service whether a job that failed should be restarted at all (seed 001)."""
