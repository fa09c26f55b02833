"""What reads the log of a failed cycle, and says what failed and whether to start again."""
