"""Who shares a run, who waits, and what is answered again: real programs, and a clock that can be moved."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING

import pytest

from segment_health.checks.message import decode_response
from segment_health.checks.nvhcd.config import Config, parse
from segment_health.checks.nvhcd.outcome import Answer, Outcome, Refusal
from segment_health.checks.nvhcd.program import Programs
from segment_health.checks.nvhcd.service import Service
from segment_health.testing import FakeClock

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Sequence
    from pathlib import Path

    from .conftest import Marked

    Script = Callable[..., str]


class Scene:
    """A service, and what it was told to do."""

    def __init__(self, marked: Marked, directory: Path) -> None:
        self.directory = directory
        self.clock = FakeClock()
        self.ran_with: list[tuple[str, ...]] = []
        self.repeated_with: list[tuple[str, ...]] = []
        self._marked = marked

    def ran(self, args: Sequence[str], outcome: Outcome, seconds: float) -> None:
        """Take note of a run."""
        assert isinstance(outcome, Answer | Refusal)
        assert seconds >= 0
        self.ran_with.append(tuple(args))

    def repeated(self, args: Sequence[str]) -> None:
        """Take note of an answer that was given again."""
        self.repeated_with.append(tuple(args))

    def config(self, program: str, **keys: object) -> Config:
        """Return a configuration."""
        told = {"socket_path": "/s", "healthcheck_path": program, "timeout": 20, **keys}
        return parse(json.dumps(told).encode(), "c.yaml")

    def service(self, program: str, **keys: object) -> Service:
        """Make the service; inside a loop."""
        self._programs = Programs(self._marked.environ)
        return Service(self.config(program, **keys), "/c.yaml", self._programs, self, self.clock)

    def do(self, work: Coroutine[object, object, None]) -> None:
        """Run it in a loop of its own, for so long at most."""

        async def bounded() -> None:
            try:
                await asyncio.wait_for(work, 60)
            finally:
                await self._programs.close()

        asyncio.run(bounded())

    async def begun(self, number: int) -> None:
        """Wait until so many programs have begun."""
        await self._marked.soon(lambda: len(self.starts()) >= number)

    def starts(self) -> list[str]:
        """Return the arguments of the programs that began, in order."""
        path = self.directory / "starts"
        return path.read_text().splitlines() if path.exists() else []

    def let_go(self) -> None:
        """Let the programs end."""
        (self.directory / "go").touch()


@pytest.fixture
def scene(marked: Marked, short_path: Path) -> Scene:
    """A service to be made."""
    return Scene(marked, short_path)


WAITS = 'cd "${0%/*}"; echo "$*" >> starts; until [ -e go ]; do sleep 0.02; done; echo "{\\"asked\\": \\"$*\\"}"'
COUNTS = 'cd "${0%/*}"; echo "$*" >> starts; echo "{}"'


def output(outcome: Outcome) -> str:
    """Return what an answer holds."""
    assert isinstance(outcome, Answer), outcome
    return decode_response(outcome.content).output


def test_calls_of_one_question_share_a_run(scene: Scene, script: Script) -> None:
    """Fifty launchers that ask at the same moment are one program; another question is another."""

    async def work() -> None:
        service = scene.service(script(WAITS))
        calls = [asyncio.create_task(service.answer(("a",))) for _ in range(50)]
        calls.append(asyncio.create_task(service.answer(("b",))))
        await scene.begun(2)
        scene.let_go()
        answers = [output(came) for came in await asyncio.gather(*calls)]
        assert answers == ['{"asked": "a"}\n'] * 50 + ['{"asked": "b"}\n']

    scene.do(work())
    assert sorted(scene.starts()) == ["a", "b"]
    assert sorted(scene.ran_with) == [("a",), ("b",)]


def test_an_answer_is_given_again_for_its_time(scene: Scene, script: Script) -> None:
    """Counted from the end of the run; healthy or not; another question has another answer."""

    async def work() -> None:
        service = scene.service(script(COUNTS + '; exit "$1"'), cache=10)
        for seconds in (0, 9.9, 0.2, 5):
            scene.clock.advance(seconds)
            await service.answer(("0",))
            await service.answer(("1",))

    scene.do(work())
    assert scene.starts() == ["0", "1", "0", "1"]
    assert scene.repeated_with == [("0",), ("1",)] * 2


def test_without_a_cache_each_call_is_a_run(scene: Scene, script: Script) -> None:
    """As it is without a word in the configuration."""

    async def work() -> None:
        service = scene.service(script(COUNTS))
        for _ in range(3):
            await service.answer(())

    scene.do(work())
    assert scene.starts() == ["", "", ""]


def test_no_error_is_given_again(scene: Scene, script: Script) -> None:
    """A program that was missing is asked as soon as it is there."""

    async def work() -> None:
        service = scene.service(str(scene.directory / "check"), cache=100)
        assert isinstance(await service.answer(()), Refusal)
        script(COUNTS)
        assert output(await service.answer(())) == "{}\n"

    scene.do(work())


def test_what_is_kept_is_bounded(scene: Scene, script: Script) -> None:
    """Whoever may ask can ask a thousand things; the oldest answers are forgotten."""

    async def work() -> None:
        service = scene.service(script(COUNTS), cache=100)
        for number in (*range(17), 16, 1, 0):
            await service.answer((str(number),))

    scene.do(work())
    assert scene.starts() == [*(str(number) for number in range(17)), "0"]


def test_one_that_goes_takes_nobody_along(scene: Scene, script: Script) -> None:
    """The run that others wait for goes on."""

    async def work() -> None:
        service = scene.service(script(WAITS))
        first, second = (asyncio.create_task(service.answer(())) for _ in range(2))
        await scene.begun(1)
        first.cancel()
        await asyncio.gather(first, return_exceptions=True)
        scene.let_go()
        assert "asked" in output(await second)

    scene.do(work())
    assert scene.starts() == [""]


def test_a_run_outlives_those_who_asked(scene: Scene, script: Script) -> None:
    """Who asks again, after a time of their own was over, waits for the same program."""

    async def work() -> None:
        service = scene.service(script(WAITS))
        first = asyncio.create_task(service.answer(()))
        await scene.begun(1)
        first.cancel()
        await asyncio.gather(first, return_exceptions=True)
        again = asyncio.create_task(service.answer(()))
        await asyncio.sleep(0)
        scene.let_go()
        await again

    scene.do(work())
    assert scene.starts() == [""]


def test_so_many_run_at_a_time(scene: Scene, script: Script, marked: Marked) -> None:
    """The others wait; one that nobody waits for any more never begins, and who asks for it anew is served."""

    async def work() -> None:
        service = scene.service(script(WAITS), max_programs=2)
        calls = {name: asyncio.create_task(service.answer((name,))) for name in "abcd"}
        await scene.begun(2)
        calls["c"].cancel()
        await asyncio.gather(calls["c"], return_exceptions=True)
        asked_anew = asyncio.create_task(service.answer(("d",)))
        assert sorted(scene.starts()) == ["a", "b"]
        scene.let_go()
        for call in (calls["a"], calls["b"], calls["d"], asked_anew):
            await call
        calls["c"] = asyncio.create_task(service.answer(("c",)))
        assert "c" in output(await calls["c"])

    scene.do(work())
    assert scene.starts()[2:] == ["d", "c"]
    assert marked.living() == []


def test_closing_kills_what_runs(scene: Scene, script: Script, marked: Marked) -> None:
    """Nobody waits for it any more."""

    async def work() -> None:
        service = scene.service(script(WAITS))
        call = asyncio.create_task(service.answer(()))
        await scene.begun(1)
        await service.close()
        await asyncio.gather(call, return_exceptions=True)
        await marked.soon(lambda: not marked.living())

    scene.do(work())
    assert scene.ran_with == []


def test_another_configuration_counts_at_once(scene: Scene, script: Script) -> None:
    """Nothing of the former one is answered; what runs by it ends as it began."""

    async def work() -> None:
        service = scene.service(script(WAITS, name="old"), cache=100)
        before = asyncio.create_task(service.answer(()))
        await scene.begun(1)
        service.configure(scene.config(script("echo new", name="new"), cache=100, max_programs=1))
        assert output(await service.answer(())) == "new\n"
        scene.let_go()
        assert "asked" in output(await before)
        assert output(await service.answer(())) == "new\n"

    scene.do(work())
    assert scene.repeated_with == [()]


def test_a_builtin_check_has_one_question(scene: Scene) -> None:
    """It gets no arguments of a request, so whatever is asked is answered by one run."""

    async def work() -> None:
        service = scene.service("builtin:nhc", timeout=50)
        came = await asyncio.gather(*(service.answer((name,)) for name in "abc"))
        assert came[0] == came[1] == came[2]

    scene.do(work())
    assert len(scene.ran_with) == 1
