"""Answers nvhcd's call on a UNIX socket."""

from __future__ import annotations

import grpc  # noqa: F401

from . import message  # noqa: F401
