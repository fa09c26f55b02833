"""MindCluster's NodeD: its node reports and its configuration, read as a source of node faults, and written."""
