"""What questions over HTTP have in common, against a real server in another process; see test_client too."""

from __future__ import annotations

import logging
import threading
from typing import TYPE_CHECKING

import pytest

from segment_health.attribution.http import Http, NoAnswerError, Question

if TYPE_CHECKING:
    from .conftest import Service


def test_a_password_is_sent_and_not_logged(service: Service, caplog: pytest.LogCaptureFixture) -> None:
    """What stands before the @ is decoded and sent, and is in no message of the library that sends it."""
    caplog.set_level(logging.DEBUG)
    url = service.url.replace("//", "//ann:s3%2Fcret@")
    answer = Http(url, "it", most=1000).ask(lambda: Question("GET", f"{url}/logs"), 20)
    assert answer.status == 200
    (asked,) = service.asked()
    assert asked["headers"]["Authorization"] == "Basic YW5uOnMzL2NyZXQ="
    assert caplog.text
    assert "s3" not in caplog.text


def test_several_at_a_time(service: Service) -> None:
    """As many questions as were allowed may hang, and the next one is not asked."""
    service.behaves(delay=-2)
    http = Http(service.url, "it", most=1000, at_a_time=2)
    before = threading.active_count()
    for _ in range(2):
        with pytest.raises(NoAnswerError, match=r"^it: no whole answer within 0.2 s$"):
            http.ask(lambda: Question("GET", f"{service.url}/logs"), 0.2)
    with pytest.raises(NoAnswerError, match="was not asked"):
        http.ask(lambda: Question("GET", f"{service.url}/logs"), 0.2)
    assert threading.active_count() == before + 2


def test_a_question_that_cannot_be_made(service: Service) -> None:
    """What making it raises is told, and its place is free again."""

    def broken() -> Question:
        raise KeyError("nothing")

    http = Http(service.url, "it", most=1000)
    for _ in range(3):
        with pytest.raises(NoAnswerError, match=r"it: asking failed: KeyError: 'nothing'"):
            http.ask(broken, 20)
    assert service.asked() == []
