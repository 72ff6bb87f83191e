"""Models around models: asking again, asking another, and how long silence may last."""

from __future__ import annotations

import logging

import anyio
import pytest
from tests.llm.dialects import request

from nanobot.llm.fallback import OPEN_LONG_S, OPEN_S, Breaker, Candidate, FallbackModel
from nanobot.llm.idle import idle_reader, stream_idle_s
from nanobot.llm.model import Delta, ErrorKind, ModelResponse, ProviderError, RetryStatus
from nanobot.llm.retry import RetryingModel
from nanobot.llm.scripted import (
    ScriptedModel,
    ScriptNotUsed,
    ScriptUsedUp,
    Step,
    calls,
    cut_off,
    fails,
    says,
    slow,
)

pytestmark = pytest.mark.anyio


class Clock:
    """Time that passes only when somebody sleeps."""

    def __init__(self) -> None:
        self.now = 0.0
        self.slept: list[float] = []

    def __call__(self) -> float:
        return self.now

    async def sleep(self, seconds: float) -> None:
        await anyio.lowlevel.checkpoint()
        self.slept.append(seconds)
        self.now += seconds


async def retried(
    *steps: Step, longest_s: float | None = None, chance: float = 0.5
) -> tuple[ModelResponse | ProviderError, Clock, list[RetryStatus]]:
    """The outcome of a script behind retries, the waits, and what was told of them."""
    clock = Clock()
    told: list[Delta] = []
    with ScriptedModel(steps) as model:
        patient = RetryingModel(model, longest_s=longest_s, sleep=clock.sleep, chance=lambda: chance)
        try:
            outcome: ModelResponse | ProviderError = await patient.respond(request(), told.append)
        except ProviderError as error:
            outcome = error
    return outcome, clock, [d for d in told if isinstance(d, RetryStatus)]


async def test_a_passing_failure_is_asked_again_with_growing_waits() -> None:
    outcome, clock, told = await retried(fails("server"), fails("timeout"), fails("connection"), says("Hi"))
    assert isinstance(outcome, ModelResponse)
    assert clock.slept == [1, 2, 4]
    assert [t.state for t in told] == ["waiting", "waiting", "waiting", "recovered"]


async def test_the_fourth_failure_is_final() -> None:
    outcome, clock, told = await retried(*[fails("rate_limit")] * 4)
    assert isinstance(outcome, ProviderError)
    assert clock.slept == [1, 2, 4]
    assert told[-1].state == "exhausted"


@pytest.mark.parametrize(
    "kind", ["billing", "authentication", "context_length", "content", "not_found", "invalid_request", "tls"]
)
async def test_what_will_not_pass_is_not_asked_again(kind: ErrorKind) -> None:
    outcome, clock, told = await retried(fails(kind))
    assert isinstance(outcome, ProviderError)
    assert (clock.slept, told) == ([], [])


async def test_an_answer_that_was_partly_shown_is_not_asked_for_again() -> None:
    outcome, clock, _ = await retried(cut_off("half an ans"))
    assert isinstance(outcome, ProviderError)
    assert outcome.shown
    assert clock.slept == []


@pytest.mark.parametrize(("chance", "waits"), [(0.0, [0.8, 1.6, 3.2]), (1.0, [1.2, 2.4, 4.8])])
async def test_waits_are_jittered_by_a_fifth(chance: float, waits: list[float]) -> None:
    _, clock, _ = await retried(*[fails("server")] * 4, chance=chance)
    assert clock.slept == pytest.approx(waits)


async def test_the_provider_says_how_long_to_wait() -> None:
    _, clock, told = await retried(fails("rate_limit", retry_after=40), says("Hi"))
    assert sum(clock.slept) == 41
    assert [t.wait_s for t in told if t.state == "waiting"] == [41, 11]


async def test_a_wait_of_more_than_a_minute_is_left_to_the_person() -> None:
    outcome, clock, _ = await retried(fails("rate_limit", retry_after=61))
    assert isinstance(outcome, ProviderError)
    assert "wait 61 s" in str(outcome)
    assert clock.slept == []


async def test_waits_are_short_where_another_model_could_be_asked() -> None:
    _, clock, _ = await retried(fails("rate_limit", retry_after=9), fails("server"), longest_s=10)
    assert clock.slept == [10]


async def test_cancelling_ends_a_wait() -> None:
    model = ScriptedModel([fails("server")])
    with anyio.move_on_after(0.01) as scope:
        await RetryingModel(model, chance=lambda: 0.5).respond(request(), lambda _: None)
    assert scope.cancelled_caught


def candidates(*models: ScriptedModel, clock: Clock | None = None) -> FallbackModel:
    breakers = [Breaker(clock or Clock()) for _ in models]
    return FallbackModel(
        [
            Candidate(model, f"own-{n}", f"p/{n}", breaker)
            for n, (model, breaker) in enumerate(zip(models, breakers, strict=True))
        ]
    )


async def test_the_next_model_answers_when_one_fails_and_gets_its_own_name() -> None:
    first, second = ScriptedModel([fails("billing")]), ScriptedModel([says("Hi")])
    answer = await candidates(first, second).respond(request(), lambda _: None)
    assert answer.model == "own-1"
    assert second.requests[0].model == "own-1"


@pytest.mark.parametrize("kind", ["invalid_request", "content", "context_length", "tls"])
async def test_a_question_that_is_wrong_is_not_asked_elsewhere(kind: ErrorKind) -> None:
    first, second = ScriptedModel([fails(kind)]), ScriptedModel([])
    with pytest.raises(ProviderError):
        await candidates(first, second).respond(request(), lambda _: None)


async def test_nobody_else_continues_what_was_shown() -> None:
    with pytest.raises(ProviderError) as failed:
        await candidates(ScriptedModel([cut_off("half")]), ScriptedModel([])).respond(
            request(), lambda _: None
        )
    assert failed.value.shown


async def test_the_last_error_is_told_when_all_fail() -> None:
    first, second = ScriptedModel([fails("server", "one")]), ScriptedModel([fails("timeout", "two")])
    with pytest.raises(ProviderError, match="two"):
        await candidates(first, second).respond(request(), lambda _: None)


async def test_a_model_that_keeps_failing_rests_and_then_one_may_try() -> None:
    clock = Clock()
    broken = ScriptedModel([*[fails("server")] * 3, says("back")])
    spare = ScriptedModel([says("spare")] * 4)
    models = candidates(broken, spare, clock=clock)
    for _ in range(4):
        await models.respond(request(), lambda _: None)
    assert len(broken.requests) == 3

    clock.now += OPEN_S
    answer = await models.respond(request(), lambda _: None)
    assert answer.model == "own-0"


async def test_only_one_of_many_probes_a_resting_model() -> None:
    clock = Clock()
    breaker = Breaker(clock)
    for _ in range(3):
        breaker.failed("authentication")
    clock.now += OPEN_S
    assert not breaker.admits()
    clock.now += OPEN_LONG_S
    assert [breaker.admits() for _ in range(20)].count(True) == 1
    breaker.released()
    assert breaker.admits()


async def test_all_models_resting_is_an_error_that_says_how_long() -> None:
    clock = Clock()
    models = candidates(ScriptedModel([fails("server")] * 3), clock=clock)
    for _ in range(3):
        with pytest.raises(ProviderError, match="script"):
            await models.respond(request(), lambda _: None)
    clock.now += 20
    with pytest.raises(ProviderError, match="rest for 40 s") as failed:
        await models.respond(request(), lambda _: None)
    assert failed.value.retry_after == 40


@pytest.mark.parametrize(
    ("written", "seconds", "warns"),
    [
        ("", 90, False),
        (" ", 90, False),
        ("12.5", 12.5, False),
        ("abc", 90, True),
        ("0", 90, True),
        ("-1", 90, True),
        ("nan", 90, True),
        ("inf", 3600, True),
        ("99999", 3600, True),
        ("3600", 3600, False),
    ],
)
def test_the_idle_timeout_as_written(
    written: str, seconds: float, warns: bool, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING):
        assert stream_idle_s({"NANOBOT_STREAM_IDLE_TIMEOUT_S": written}) == seconds
    assert bool(caplog.records) is warns


def test_the_idle_timeout_is_read_at_each_request() -> None:
    env = {"NANOBOT_STREAM_IDLE_TIMEOUT_S": "5"}
    read = idle_reader(env)
    assert read() == 5
    env["NANOBOT_STREAM_IDLE_TIMEOUT_S"] = "6"
    assert read() == 6


async def test_a_script_is_played_strictly() -> None:
    with ScriptedModel([calls("divide", a=1), says("done", reasoning="hm")]) as model:
        first = await model.respond(request(), lambda _: None)
        second = await model.respond(request(), lambda _: None)
    assert (first.finish, second.finish) == ("tool_calls", "stop")
    assert len(model.requests) == 2
    with pytest.raises(ScriptUsedUp):
        await model.respond(request(), lambda _: None)
    with pytest.raises(ScriptNotUsed, match="1 steps"), ScriptedModel([says("never")]):
        pass


async def test_recorded_requests_are_detached() -> None:
    asked = request()
    model = ScriptedModel([says("Hi")])
    await model.respond(asked, lambda _: None)
    assert model.requests[0] == asked
    assert model.requests[0].messages[0] is not asked.messages[0]


async def test_a_slow_step_waits_for_its_event() -> None:
    go = anyio.Event()
    model = ScriptedModel([slow(says("late"), go.wait)])
    answers: list[ModelResponse] = []

    async def ask() -> None:
        answers.append(await model.respond(request(), lambda _: None))

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(ask)
        await anyio.wait_all_tasks_blocked()
        assert answers == []
        go.set()
    assert len(answers) == 1
