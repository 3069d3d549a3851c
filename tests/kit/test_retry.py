"""A failed call is repeated after growing pauses."""

import asyncio

import pytest

from herenow.errors import Unavailable, UnknownOutcome
from herenow.kit.retry import Backoff, retry

pytestmark = pytest.mark.looptime(noop_cycles=0)


def failing(times, error=Unavailable):
    """A call that fails `times` times and records when it was made."""
    made = []

    async def call():
        made.append(asyncio.get_running_loop().time())
        if len(made) <= times:
            raise error(f"failure {len(made)}")
        return "done"

    return call, made


@pytest.mark.parametrize(
    ("backoff", "pauses"),
    [
        (Backoff(0.5), [0.5, 0.5, 0.5, 0.5]),
        (Backoff(0.5, 3.0), [0.5, 1.0, 2.0, 3.0]),
        (Backoff(5.0, 1.0), [1.0, 1.0, 1.0, 1.0]),
        (Backoff(0.0, 1.0), [0.0, 0.0, 0.0, 0.0]),
    ],
)
def test_pauses_between_retries_double_up_to_the_longest_pause(backoff, pauses):
    assert [backoff.pause(failures) for failures in range(1, 5)] == pauses
    assert backoff.pause(100_000) == pauses[-1]


def test_pauses_between_retries_have_random_jitter():
    backoff = Backoff(1.0, 8.0, jitter=0.5)
    pauses = [backoff.pause(3) for _ in range(200)]
    assert all(2.0 < pause <= 4.0 for pause in pauses)
    assert len(set(pauses)) > 100


async def test_retry_returns_the_result_of_the_first_successful_call():
    call, made = failing(3)
    assert await retry(call, Backoff(1.0, 10.0)) == "done"
    assert [round(at - made[0], 3) for at in made] == [0, 1, 3, 7]


async def test_retry_of_a_call_that_succeeds_at_once_does_not_wait():
    call, made = failing(0)
    began = asyncio.get_running_loop().time()
    assert await retry(call, Backoff(1.0)) == "done"
    assert made == [began]


async def test_retry_raises_an_error_other_than_unavailability_at_once():
    call, made = failing(3, ValueError)
    with pytest.raises(ValueError, match="failure 1"):
        await retry(call, Backoff(1.0))
    assert len(made) == 1


async def test_retry_raises_the_error_of_the_last_attempt():
    call, made = failing(9, UnknownOutcome)
    told = []
    with pytest.raises(UnknownOutcome, match="failure 3"):
        await retry(call, Backoff(1.0), attempts=3, on_error=told.append)
    assert len(made) == 3
    assert [str(error) for error in told] == ["failure 1", "failure 2"]
