"""The client of nvhcd."""

from __future__ import annotations

import grpc  # noqa: F401
