"""The messages of nvhcd.proto, and what the call is named.

They are described here and not generated: generated code runs with the protobuf of its own time alone. The pool of
descriptors is our own, since NVRx's messages of the same names may be in the same process.

Source: seed 001, "Node health check service"; nvidia_resiliency_ext/shared_utils/proto/nvhcd.proto.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol, cast

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from google.protobuf.message import DecodeError as DecodeError  # noqa: PLC0414 - for those who read messages

if TYPE_CHECKING:
    from collections.abc import MutableSequence

    from google.protobuf.message import Message

SERVICE = "nvhcd.HealthCheckService"
METHOD = "RunHealthCheck"

_Field = descriptor_pb2.FieldDescriptorProto


class Request(Protocol):
    """A HealthCheckRequest: what is appended to the health check's command line."""

    args: MutableSequence[str]


class Response(Protocol):
    """A HealthCheckResponse: how the health check ended, and what it wrote."""

    success: bool
    exit_code: int
    output: str
    error: str


def _describe() -> descriptor_pb2.FileDescriptorProto:
    """Write down nvhcd.proto."""
    file = descriptor_pb2.FileDescriptorProto(name="nvhcd.proto", package="nvhcd", syntax="proto3")
    request = file.message_type.add(name="HealthCheckRequest")
    request.field.add(name="args", number=1, type=_Field.TYPE_STRING, label=_Field.LABEL_REPEATED)
    response = file.message_type.add(name="HealthCheckResponse")
    for number, (name, kind) in enumerate(
        (
            ("success", _Field.TYPE_BOOL),
            ("exit_code", _Field.TYPE_INT32),
            ("output", _Field.TYPE_STRING),
            ("error", _Field.TYPE_STRING),
        ),
        start=1,
    ):
        response.field.add(name=name, number=number, type=kind, label=_Field.LABEL_OPTIONAL)
    return file


_POOL = descriptor_pool.DescriptorPool()
_POOL.Add(_describe())


_REQUEST, _RESPONSE = (
    message_factory.GetMessageClass(_POOL.FindMessageTypeByName(f"nvhcd.{name}"))
    for name in ("HealthCheckRequest", "HealthCheckResponse")
)


def request(*args: str) -> Request:
    """Make a request."""
    return cast("Request", _REQUEST(args=args))


def response(*, success: bool, exit_code: int, output: str, error: str) -> Response:
    """Make an answer. ValueError where the exit code has more than 32 bits."""
    return cast("Response", _RESPONSE(success=success, exit_code=exit_code, output=output, error=error))


def encode(message: Request | Response) -> bytes:
    """Write a message."""
    return cast("Message", message).SerializeToString()


def decode_request(content: bytes) -> Request:
    """Read a request. DecodeError if it is none."""
    return cast("Request", _REQUEST.FromString(content))


def decode_response(content: bytes) -> Response:
    """Read an answer. DecodeError if it is none."""
    return cast("Response", _RESPONSE.FromString(content))
