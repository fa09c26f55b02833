"""Rows of the table of failures: the GPU as a program sees it, the script, its settings, its numbers. Data."""

from __future__ import annotations

from .expression import Expression, any_of
from .kind import Kind, Role, plain, raised, told
from .machine import XID

_CUDA = r"(?:(?:NCCL WARN )?Cuda failure (?:\d+ )?'?|CUDA error(?: \d+)?: )"

PROGRAM = (
    Kind(
        "cuda-memory-held",
        "another process has a GPU, or memory of it that was needed",
        Role.CAUSE,
        told(
            r"(?:CUDA|HIP|XPU) out of memory\b.*\bProcess \d+ has .*\bthis process has ",
            _CUDA + r"CUDA-capable device\(s\) is/are busy or unavailable",
        ),
        is_outage=True,  # one that a killed cycle left behind, or of another job
    ),
    Kind(
        "cuda-oom",
        "a GPU's memory did not suffice",
        Role.CAUSE,
        told(
            r"(?:CUDA|HIP|XPU) out of memory",
            r"RESOURCE_EXHAUSTED: Out of memory",
            _CUDA + r"out of memory",
            r"CUDA_ERROR_OUT_OF_MEMORY",
            r"(?:CUDA error: )?CUBLAS_STATUS_ALLOC_FAILED",
        ),
    ),
    Kind(
        "cuda-assert",
        "an assertion in a kernel failed, such as that of an index",
        Role.CAUSE,
        told(
            _CUDA + r"device-side assert triggered",
            r"\S+\.cu\w?:\d+: .*: block: \[.*Assertion .* failed",
        ),
    ),
    Kind(
        "cuda-illegal-access",
        "a kernel used memory that it must not use",
        Role.CAUSE,
        told(
            _CUDA + r"(?:an illegal memory access|misaligned address|an illegal instruction)",
            _CUDA + r"(?:invalid (?:device function|configuration argument)|CUBLAS_STATUS_EXECUTION_FAILED)",
            r"cuDNN error: CUDNN_STATUS_(?:EXECUTION_FAILED|INTERNAL_ERROR)",
        ),
    ),
    Kind(
        "xid-application",
        "a GPU stopped a program that used it wrongly",
        Role.CAUSE,
        plain(XID + r"(?:13|31|32)\b"),
    ),
    Kind(
        "cuda-launch-failure",
        "a kernel failed",
        Role.DOUBTFUL,
        told(_CUDA + r"(?:unspecified launch failure|the launch timed out)"),
    ),
    Kind(
        "python-syntax",
        "a script is not Python",
        Role.CAUSE,
        raised(r"(?:SyntaxError|IndentationError|TabError): "),
        is_certain=True,
        needs_traceback=True,
    ),
    Kind(
        "shared-object",
        "a library is not on a node, or another than expected",
        Role.CAUSE,
        raised(
            r"(?:ImportError|OSError): \S+: "
            r"(?:cannot open shared object file|undefined symbol|version `|failed to map segment|file too short"
            r"|invalid ELF header|cannot allocate memory in static TLS)"
        ),
        is_outage=True,
        needs_traceback=True,
    ),
    Kind(
        "python-import",
        "a module is not there",
        Role.CAUSE,
        raised(r"(?:ModuleNotFoundError|ImportError): "),
        is_certain=True,
        needs_traceback=True,
    ),
    Kind(
        "config",
        "a setting is wrong",
        Role.CAUSE,
        Expression(
            any_of(
                [
                    r"[\w./-]+: error: (?:unrecognized|the following arguments are|ambiguous)",
                    # Of an empty value: what Slurm should have set is not set on a node.
                    r"[\w./-]+: error: argument -[^']*(?:'[^']|$)",
                    raised(
                        r"(?:ConfigKeyError|ConfigAttributeError|ConfigCompositionException|MissingMandatoryValue"
                        r"|InterpolationKeyError|MissingConfigException|OverrideParseException)\b",
                        r"ValidationError: \d+ validation errors? for ",
                        r"(?:ScannerError|ParserError|TOMLDecodeError)\b",
                    ).text,
                ]
            )
        ),
        is_certain=True,
    ),
    Kind(
        "checkpoint-mismatch",
        "a checkpoint is not of this model",
        Role.CAUSE,
        raised(
            r"RuntimeError: Error\(s\) in loading state_dict for ",
            r"\w*Error: .*(?:checkpoint.*(?:mismatch|do(?:es)? not match|not equal)|mismatch.*checkpoint)",
            r"KeyError: .* (?:from|in|of) (?:the )?checkpoint",
            r"CheckpointingException: ",
        ),
        is_certain=True,
        needs_traceback=True,
    ),
    Kind(
        "checkpoint-damaged",
        "a checkpoint cannot be read",
        Role.CAUSE,
        raised(
            r"RuntimeError: (?:PytorchStreamReader failed|unexpected EOF, expected )",
            r"(?:UnpicklingError|BadZipFile|SafetensorError)\b",
            r"EOFError: Ran out of input",
        ),
        needs_traceback=True,
    ),
    Kind(
        "missing-file",
        "a file is not there, or may not be read",
        Role.CAUSE,
        raised(r"(?:FileNotFoundError|PermissionError|IsADirectoryError|NotADirectoryError): "),
        is_outage=True,  # a mount that one node lacks
        needs_traceback=True,
    ),
    Kind(
        "shape-mismatch",
        "tensors do not fit each other",
        Role.CAUSE,
        raised(
            r"RuntimeError: (?:mat1 and mat2 shapes cannot be|The size of tensor a |shape '.*' is invalid"
            r"|Sizes of tensors must match|Expected size|Given groups=|size mismatch)",
            r"AssertionError: .*(?:not divisible|must be divisible|shape)",
        ),
        needs_traceback=True,
    ),
    Kind(
        "nan",
        "the training no longer has numbers",
        Role.CAUSE,
        told(
            r"(?:[Rr]ank \d+: )?[Ff]ound (?:NaN|Inf) in ",
            r"Unexpected result (?:nan|inf)\b",
            r"(?:.{0,40}\b)?[Ll]oss (?:is|became|was|=) ?(?:nan|inf|NaN|Inf)\b",
            r"(?:NaN|Inf|[Nn]on-finite) (?:loss|gradients?)\b",
            r"Current loss scale already at minimum",
            r"The total norm of order .* is non-finite",
        ),
    ),
)
