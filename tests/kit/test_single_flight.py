"""`SingleFlight`: one attempt for all concurrent callers, and a pause after a failure."""

import asyncio

import pytest

from herenow.errors import Unavailable
from herenow.kit.single_flight import SingleFlight

pytestmark = pytest.mark.looptime

BREATH = 2.0


class Attempts:
    """Attempts that each take a second and raise the next error of `errors`, or return their number."""

    def __init__(self, *errors):
        self.errors = list(errors)
        self.made = 0
        self.flight = SingleFlight(self.attempt, "attempt", BREATH)

    async def attempt(self):
        self.made += 1
        number = self.made
        await asyncio.sleep(1)
        error = self.errors.pop(0) if self.errors else None
        if error is not None:
            raise error
        return number


async def test_concurrent_callers_of_a_single_flight_share_one_attempt_and_its_result(looptime):
    attempts = Attempts()
    first = asyncio.create_task(attempts.flight())
    await asyncio.sleep(0.9)
    assert await asyncio.gather(first, *(attempts.flight() for _ in range(10))) == [1] * 11
    assert looptime == 1


async def test_a_call_to_a_single_flight_after_a_success_starts_a_new_attempt_at_once(looptime):
    attempts = Attempts()
    assert [await attempts.flight(), await attempts.flight()] == [1, 2]
    assert looptime == 2


async def test_concurrent_callers_of_a_single_flight_all_get_the_failure_of_its_attempt():
    attempts = Attempts(Unavailable("no answer"))
    found = await asyncio.gather(*(attempts.flight() for _ in range(10)), return_exceptions=True)
    assert [(type(error), str(error)) for error in found] == [(Unavailable, "no answer")] * 10
    assert attempts.made == 1


async def test_after_a_failure_callers_of_a_single_flight_get_the_same_error_until_a_pause_ends():
    attempts = Attempts(Unavailable("no answer"))
    with pytest.raises(Unavailable):
        await attempts.flight()
    await asyncio.sleep(BREATH - 0.1)
    with pytest.raises(Unavailable, match="no answer"):
        await attempts.flight()
    assert attempts.made == 1
    await asyncio.sleep(0.1)
    assert await attempts.flight() == 2


async def test_the_error_that_a_single_flight_repeats_to_callers_during_the_pause_keeps_its_type():
    class Refused(Unavailable):
        pass

    attempts = Attempts(Refused("wrong password"))
    for _ in range(2):
        with pytest.raises(Refused, match="wrong password"):
            await attempts.flight()
    assert attempts.made == 1


async def test_an_error_of_a_single_flight_other_than_unavailable_causes_no_pause():
    attempts = Attempts(ValueError("a defect"))
    with pytest.raises(ValueError, match="a defect"):
        await attempts.flight()
    assert await attempts.flight() == 2


async def test_a_cancelled_caller_of_a_single_flight_does_not_cancel_the_attempt_for_others():
    attempts = Attempts()
    first, second = (asyncio.create_task(attempts.flight()) for _ in range(2))
    await asyncio.sleep(0.5)
    first.cancel()
    assert await second == 1
    assert first.cancelled()


async def test_an_attempt_of_a_single_flight_whose_callers_were_cancelled_completes():
    attempts = Attempts(Unavailable("no answer"))
    caller = asyncio.create_task(attempts.flight())
    await asyncio.sleep(0.5)
    caller.cancel()
    await asyncio.sleep(1)
    with pytest.raises(Unavailable, match="no answer"):
        await attempts.flight()
    assert attempts.made == 1


async def test_ending_a_single_flight_cancels_its_attempt_and_the_callers_get_unavailable():
    attempts = Attempts()
    caller = asyncio.create_task(attempts.flight())
    await asyncio.sleep(0.5)
    attempts.flight.end()
    with pytest.raises(Unavailable, match="attempt was cancelled"):
        await caller


async def test_a_call_after_ending_a_single_flight_starts_a_new_attempt():
    attempts = Attempts()
    caller = asyncio.create_task(attempts.flight())
    await asyncio.sleep(0.5)
    attempts.flight.end()
    await asyncio.gather(caller, return_exceptions=True)
    assert await attempts.flight() == 2


async def test_ending_a_single_flight_without_an_attempt_does_nothing():
    attempts = Attempts()
    attempts.flight.end()
    assert await attempts.flight() == 1
