"""What Prometheus is told of a publisher's passes, over HTTP or in a file."""
