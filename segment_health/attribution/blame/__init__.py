"""What analyses of logs say against nodes, and what it is worth to a publisher: one more source of faults."""
