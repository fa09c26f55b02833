"""Pairs of faults that a site meets together; the second comes while the first is in force, and goes before it."""

PAIRS: tuple[tuple[str, str], ...] = (
    ("no space", "killed"),
    ("read-only", "slurmctld hangs"),
    ("I/O errors", "killed again and again"),
    ("mount hangs in the kernel", "killed"),
    ("rename hangs in the kernel", "killed"),
    ("mount hangs", "host reboots"),
    ("directory vanishes", "slurmctld hangs"),
    ("ledger lost", "killed"),
    ("no space", "state garbled"),
    ("name is a directory", "no inodes"),
    ("fsync is slow", "killed in the middle of a write"),
    ("no descriptors", "slurmctld hangs"),
    ("clock a day behind", "ledger lost"),
    ("clock jumps", "stopped for long"),
    ("clock a day ahead", "slurmctld hangs"),
    ("umask 077", "directory replaced"),
    ("fsync is slow", "no memory"),
)
