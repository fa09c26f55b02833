"""Why a request is not served: the codes of NVRx's API, and the HTTP status of each. Pure."""

from __future__ import annotations

INVALID_PATH = "invalid_path"
INVALID_PARAMETER = "invalid_parameter"
NOT_REGULAR = "not_regular"
OUTSIDE_ROOT = "outside_root"
NOT_READABLE = "not_readable"
NOT_FOUND = "not_found"
TOO_LARGE = "too_large"
RATE_LIMITED = "rate_limited"
INTERNAL = "internal_error"
JOB_LIMIT = "job_limit_reached"
STORAGE = "storage_unavailable"
"""The log's storage does not answer."""
STATE = "state_unavailable"
"""What was accepted could not be written down, so nothing was accepted."""
STATUS = {
    INVALID_PATH: 400,
    INVALID_PARAMETER: 400,
    NOT_REGULAR: 400,
    OUTSIDE_ROOT: 403,
    NOT_READABLE: 403,
    NOT_FOUND: 404,
    TOO_LARGE: 413,
    RATE_LIMITED: 429,
    INTERNAL: 500,
    JOB_LIMIT: 503,
    STORAGE: 503,
    STATE: 503,
}


class Refusal(Exception):  # noqa: N818 - an answer like others
    """A request is not served. `code` is a key of STATUS, `message` a sentence for people."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code
        self.message = message

    @property
    def status(self) -> int:
        """The HTTP status that is answered."""
        return STATUS[self.code]

    def body(self) -> dict[str, object]:
        """What is answered, in NVRx's form."""
        return {"error_code": self.code, "message": self.message, "details": None}
