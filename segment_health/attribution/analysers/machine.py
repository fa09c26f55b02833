"""Rows of the table of failures: hardware, Slurm, memory, storage. Data.

What an Xid means is said by NVIDIA's public catalogue of Xid errors.
"""

from __future__ import annotations

from .kind import Blame, Kind, Role, plain, told

XID = r"NVRM: (?:GPU\S+ )?Xid \([^)]+\): "
_CUDA = r"(?:(?:NCCL WARN )?Cuda failure (?:\d+ )?'?|CUDA error(?: \d+)?: )"
ENDED_BY_SLURM = r"(?:slurmstepd(?:-[\w.-]+)?: )?(?:error: )?\*\*\* (?:JOB|STEP) [\w.+]+ (?:ON \S+ )?"
_JOB = ENDED_BY_SLURM.replace("JOB|STEP", "JOB")
_STEPD = r"slurmstepd(?:-[\w.-]+)?: error: "
TASKS = r"srun: error: [A-Za-z0-9.-]+: tasks? [\d,\[\]-]+: "

MACHINE = (
    Kind(
        "node-failure",
        "Slurm lost a node",
        Role.LOST,
        plain(
            r"srun: error: Node failure on (?P<node>[A-Za-z0-9.-]+)",
            ENDED_BY_SLURM + r"CANCELLED AT \S+ DUE TO NODE FAILURE",
        ),
        repeats=None,
        blame=Blame.NAMED,  # what stands behind ON is where slurmstepd lives, and tells of it
    ),
    Kind(
        "preemption",
        "another job needed the nodes",
        Role.LOST,
        plain(
            ENDED_BY_SLURM + r"(?:CANCELLED|REQUEUED) AT \S+ DUE TO PREEMPTION",
            r"(?:srun|scontrol|slurmstepd): .*preempt(?:ed|ion)",
        ),
        repeats=None,
    ),
    Kind(
        "time-limit",
        "the job's time was over",
        Role.CAUSE,
        plain(ENDED_BY_SLURM + r"CANCELLED AT \S+ DUE TO TIME LIMIT"),
        repeats=None,
    ),
    Kind(
        "cancelled",
        "somebody cancelled or requeued the job",
        Role.CAUSE,
        plain(_JOB + r"CANCELLED AT \S+ (?:\*\*\*|DUE TO (?:JOB )?REQUEUE|DUE (?:TO|to) SIGNAL)"),
        repeats=None,
    ),
    Kind(
        "launch-failure",
        "the job could not be started on a node",
        Role.LOST,
        plain(
            r"srun: error: Task launch for \S+ failed on node (?P<node>[A-Za-z0-9.-]+):",
            r"srun: error: Application launch failed",
            _STEPD + r"(?:pyxis: (?:container start failed|couldn't start container)|execve\(\): )",
            r"\S*python\S*: can't open file ",
        ),
        is_outage=True,
        blame=Blame.NAMED,
    ),
    Kind(
        "xid-hardware",
        "a GPU or its link failed",
        Role.LOST,
        plain(
            XID + r"(?:48|63|64|74|79|92|94|95|119|120|140|143|149)\b",
            r"NVRM: (?:The NVIDIA )?GPU .*fallen off the bus",
        ),
        is_outage=True,
        blame=Blame.SPEAKER,
    ),
    Kind(
        "cuda-ecc",
        "a GPU's memory failed",
        Role.LOST,
        told(_CUDA + r"(?:an )?uncorrectable (?:NVLink|ECC) error"),
        is_outage=True,
        blame=Blame.SPEAKER,
    ),
    Kind(
        "cuda-driver",
        "a node's driver is not ready",
        Role.LOST,
        told(
            _CUDA + r"(?:system not yet initialized|system has unsupported display driver)",
            r"Failed to initialize NVML: Driver/library version mismatch",
        ),
        is_outage=True,
        blame=Blame.SPEAKER,
    ),
    Kind(
        "no-gpu",
        "no GPU can be used",
        Role.LOST,
        told(
            _CUDA + r"(?:no CUDA-capable device|CUDA driver version is insufficient|initialization error"
            r"|unknown error)",
            r"No CUDA GPUs are available",
            r"CUDA driver initialization failed",
            r"Failed to initialize NVML: ",
            r"libcuda\.so\.1: cannot open shared object file",
        ),
        is_outage=True,
        blame=Blame.ODD,  # where no host has one, settings or the image are to blame
    ),
    Kind(
        "link-down",
        "a network adapter lost its link",
        Role.LOST,
        plain(
            r"(?:NCCL WARN )?NET/IB ?: .*(?:IBV_EVENT_(?:PORT_ERR|DEVICE_FATAL)"
            r"|[Gg]ot (?:non-fatal |fatal )?async (?:fatal )?event ?: ?(?:port error|local catastrophic error))",
            r"(?:NCCL WARN )?NET/IB ?: .*(?:port|link) (?:is )?(?:DOWN|down)\b",
        ),
        is_outage=True,
        blame=Blame.SPEAKER,
    ),
    Kind(
        "host-oom",
        "a node's memory ran out, and the kernel killed a process",
        Role.CAUSE,
        plain(
            rf"(?:{_STEPD}|error: )Detected \d+ oom[-_ ]?kill",
            _STEPD + r".*(?:[Ee]xceeded (?:job |step )?memory limit|oom[-_]kill)",
            TASKS + r"Out Of Memory",
            r"(?:Memory cgroup out of memory|Out of memory): Kill(?:ed)? process \d",
            r"oom-kill:constraint=",
        ),
    ),
    Kind(
        "host-limits",
        "a node has no more processes, memory or files to give",
        Role.CAUSE,
        told(
            r"\w*Error: \[Errno (?:11|12|23|24)\]",
            r"\w*Error: can't start new thread",
            r"MemoryError(?::|$)",
            r".*: Cannot allocate memory$",
        ),
        is_outage=True,
    ),
    Kind(
        "storage-full",
        "there is no space on the storage",
        Role.CAUSE,
        told(
            r"OSError: \[Errno 28\]", r"\[Errno 28\]", r".*: No space left on device", r"No space left on device"
        ),
        is_outage=True,
    ),
    Kind(
        "storage-quota",
        "a quota of the storage is used up",
        Role.CAUSE,
        told(r"\[Errno 122\]", r".*: Disk quota exceeded", r"Disk quota exceeded"),
        is_outage=True,
    ),
    Kind(
        "storage-read-only",
        "the storage is read-only",
        Role.CAUSE,
        told(r"\[Errno 30\]", r".*: Read-only file system", r"Read-only file system"),
        is_outage=True,
    ),
    Kind(
        "storage-lost",
        "the storage failed",
        Role.CAUSE,
        told(
            r"(?:SyntaxError|ValueError): source code (?:string )?cannot contain null bytes",
            r"(?:\w+\.)*OSError: \[Errno (?:5|103|107|108|110|112|116|121|512|524)\]",
            r"(?:.*: )?(?:Stale (?:NFS )?file handle|Transport endpoint is not connected"
            r"|Cannot send after transport endpoint shutdown|Remote I/O error)",
            r"(?:\w+: )?(?:cannot open |read(?:ing)? error: |write error: ).*Input/output error",
            r"\w*Error: .*: Input/output error",
        ),
        is_outage=True,
    ),
)
