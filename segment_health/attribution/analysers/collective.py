"""Rows of the table of failures: how ranks find each other, lose each other, and are ended. Data."""

from __future__ import annotations

from .expression import Expression, any_of
from .kind import Blame, Kind, Role, plain, raised, told
from .machine import ENDED_BY_SLURM, TASKS, XID

_WORKER = r"DataLoader worker \(pid(?:\(s\))? [\d, ]+\) "

COLLECTIVE = (
    Kind(
        "rendezvous",
        "the ranks did not find each other in time",
        Role.DOUBTFUL,
        raised(
            r"Rendezvous(?:Timeout|Connection|Closed|State)?Error\b",
            r"(?:DistNetworkError|DistStoreError|RuntimeError|TimeoutError): "
            r"(?:The client socket has (?:timed out|failed)"
            r"|Timed out after \d+ seconds waiting for clients|.*wait timeout after \d+ ?ms"
            r"|The server socket has failed to listen)",
        ),
        is_outage=True,
    ),
    Kind(
        "network",
        "a name or a connection failed",
        Role.DOUBTFUL,
        raised(
            r"(?:gaierror|ConnectionError|ConnectTimeout|ReadTimeout|ConnectTimeoutError|NameResolutionError"
            r"|ProtocolError|MaxRetryError|SSLError|EndpointConnectionError|ClientConnectorError"
            r"|LocalEntryNotFoundError)\b",
            r"(?:ConnectionRefusedError|TimeoutError): \[Errno \d+\]",
            r"OSError: \[Errno (?:101|113|111)\]",
            # Whatever asked for it: a hub, a store of objects, a database, a licence.
            r"\w*Error: .*(?:5\d\d (?:Server Error|Service Unavailable)|Too Many Requests|Connection refused"
            r"|could not connect|timed out|unreachable)",
        ),
        is_outage=True,
        needs_traceback=True,
    ),
    Kind(
        "nccl-transport",
        "the network between nodes failed",
        Role.DOUBTFUL,
        plain(
            r"(?:NCCL WARN )?NET/IB\w* ?: ?(?:mlx\S+ )?[Gg]ot completion from peer "
            r"(?P<peer>[A-Za-z0-9.:-]+?)(?:<\d+>)? with (?:status=|error )(?:5\b|12|13|IBV_WC_)",
            r"(?:NCCL WARN )?(?:NET/IB ?: )?Call to ibv_\w+ failed",
            r"NCCL WARN NET/(?:Socket|OFI|IB)\b.*(?:failed|error|timed out|No route to host)",
        ),
        is_outage=True,
        blame=Blame.PEERS,
    ),
    Kind(
        "nccl-error",
        "NCCL gave up",
        Role.DOUBTFUL,
        told(
            r"NCCL (?:error in|Error \d)",
            r"(?:unhandled (?:system|cuda) error|internal error - please report|invalid usage)\b.*NCCL",
            r"nccl(?:UnhandledCuda|System|Internal)Error\b",
        ),
        is_outage=True,
    ),
    Kind(
        "data-worker",
        "a process that loads data ended",
        Role.DOUBTFUL,
        told(
            _WORKER + r"is killed by signal: (?:Killed|Bus error|Segmentation fault|Aborted)",
            _WORKER + r"exited unexpectedly",
        ),
    ),
    Kind(
        "crash",
        "a process crashed",
        Role.DOUBTFUL,
        plain(
            r"Fatal Python error: (?:Segmentation fault|Bus error|Aborted|Illegal instruction)",
            r"failed \(exitcode: -(?:4|7|11)\) local_rank",
            TASKS + r"(?:Segmentation fault|Bus error|Illegal instruction)",
            r"\S+: line \d+: +\d+ (?:Segmentation fault|Bus error|Illegal instruction)",
            r"\*\*\* Process received signal \*\*\*",
            r"!!!!!!! Segfault encountered !!!!!!!",
            r"double free or corruption|malloc\(\): |corrupted size vs\. prev_size",
        ),
    ),
    Kind(
        "nccl-peer-gone",
        "a rank lost its connection to another",
        Role.CONSEQUENCE,
        told(
            r"ncclRemoteError\b",
            r"NCCL WARN .*(?:[Cc]onnection closed by (?:remote )?peer|socket .*(?:closed|reset))",
            r".*(?:remote process exited or there was a network error|Connection closed by (?:remote )?peer"
            r"|Connection reset by peer|Broken pipe|Socket closed)",
            r"(?:ConnectionReset|ConnectionAborted|BrokenPipe)Error",
        ),
        is_outage=True,
    ),
    Kind(
        "nccl-timeout",
        "a collective did not end in time",
        Role.CONSEQUENCE,
        told(
            r"(?:\[?(?:PG .*)?[Rr]ank \d+\]?:? ?)?Watchdog caught collective operation timeout",
            r"(?:\[.*\] )?(?:Some NCCL operations have failed or timed out|Timeout at NCCL work)",
            r".*Exception \(either an error or timeout\) detected by watchdog",
            r".*NCCL watchdog (?:thread )?(?:terminated|timeout)",
        ),
        is_outage=True,
    ),
    Kind(
        "ended",
        "the ranks were ended",
        Role.CONSEQUENCE,
        Expression(
            any_of(
                [
                    raised(
                        r"ChildFailedError\b|SignalException: |KeyboardInterrupt$|SystemExit\b|EOFError$",
                        rf"RuntimeError: {_WORKER}is killed by signal: Terminated",
                    ).text,
                    r"failed \(exitcode: -?\d+\) local_rank|Sending process \d+ closing signal",
                    r"terminate called after throwing an instance of 'c10::",
                    r"(?:Killed|Terminated|Aborted)(?: \(core dumped\))?$",
                    r"Killing subprocess \d|.*exits with return code = -?[1-9]",
                    TASKS + r"(?:Exited with exit code|Terminated|Killed|Aborted)",
                    r"srun: (?:Terminating (?:StepId|job step)|Job step aborted|Force Terminated)",
                    ENDED_BY_SLURM + r"CANCELLED AT ",
                    XID + r"(?:43|45)\b",
                ]
            )
        ),
        repeats=None,
    ),
    Kind(
        "python",
        "the script raised an exception that is not known here",
        Role.CAUSE,
        raised(r"(?:\w*(?:Error|Exception)|StopIteration)(?::|$)"),
        repeats=3,  # nobody knows of what
        needs_traceback=True,
    ),
)
"""The last one is any other exception: it has to stand behind all others."""
