"""Whether a job that failed should be restarted at all: who asks, and the service that is asked (seed 001)."""
