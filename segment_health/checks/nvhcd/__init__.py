"""A daemon that NVRx's node health check can ask: nvhcd.HealthCheckService on a UNIX socket (seed 001)."""
