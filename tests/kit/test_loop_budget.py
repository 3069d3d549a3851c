"""Much work is spread over loop iterations, so that the event loop stays responsive."""

import asyncio
from functools import partial

from herenow.kit.loop_budget import LoopBudget

BUDGET = 500


class Iterations:
    """Counts loop iterations."""

    def __init__(self):
        self.count = 0
        self._task = asyncio.create_task(self._count())

    async def _count(self):
        while True:
            await asyncio.sleep(0)
            self.count += 1

    def stop(self):
        self._task.cancel()


async def told(weights):
    """[(caller, loop iteration)] in the order of execution."""
    budget, clock, done = LoopBudget(BUDGET), Iterations(), []

    async def work(who, units):
        await budget.take(units)
        done.append((who, clock.count))

    await asyncio.gather(*(work(who, units) for who, units in enumerate(weights)))
    clock.stop()
    return done


async def test_much_work_is_done_in_order_and_spread_over_event_loop_iterations():
    done = await told([200] * 20)
    assert [who for who, _ in done] == list(range(20))
    per_turn = [sum(turn == each for _, turn in done) for each in {turn for _, turn in done}]
    assert max(per_turn) <= BUDGET // 200


async def test_small_pieces_of_work_share_an_event_loop_iteration():
    done = await told([1] * BUDGET)
    assert len({turn for _, turn in done}) == 1


async def test_work_larger_than_the_budget_of_an_event_loop_iteration_gets_an_iteration_to_itself():
    done = await told([1, 10 * BUDGET, 10 * BUDGET, 1, 1])
    turns = dict(done)
    assert turns[0] < turns[1] < turns[2] < turns[3] == turns[4]


async def test_a_single_caller_within_the_work_budget_of_an_event_loop_iteration_does_not_wait():
    clock, budget = Iterations(), LoopBudget(BUDGET)
    for _ in range(3):
        before = clock.count
        await budget.take(BUDGET)
        assert clock.count == before
        for _ in range(2):
            await asyncio.sleep(0)
    clock.stop()


async def test_a_cancelled_caller_uses_nothing_of_the_work_budget_of_an_event_loop_iteration():
    budget, done = LoopBudget(BUDGET), []

    async def work(who):
        await budget.take(BUDGET)
        done.append(who)

    tasks = [asyncio.create_task(work(who)) for who in range(5)]
    await asyncio.sleep(0)
    for who in (1, 2, 4):
        tasks[who].cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    assert done == [0, 3]
    await work(5)
    assert done == [0, 3, 5]


async def pass_iterations(count=5):
    for _ in range(count):
        await asyncio.sleep(0)


async def test_functions_within_the_work_budget_of_an_event_loop_iteration_are_called_at_once():
    budget, called = LoopBudget(BUDGET), []
    for number in range(BUDGET):
        budget.run(partial(called.append, number))
    assert called == list(range(BUDGET))


async def test_functions_beyond_the_work_budget_of_an_event_loop_iteration_are_called_in_later_ones():
    budget, called, per_iteration = LoopBudget(3), [], []
    for number in range(10):
        budget.run(partial(called.append, number))
    while len(called) < 10:
        per_iteration.append(len(called))
        await asyncio.sleep(0)
    assert per_iteration == [3, 6, 9]
    assert called == list(range(10))


async def test_a_new_function_does_not_overtake_one_deferred_to_a_later_event_loop_iteration():
    budget, called = LoopBudget(3), []
    for number in range(8):
        budget.run(partial(called.append, number))
    await asyncio.sleep(0)
    budget.run(partial(called.append, "later"))
    await pass_iterations()
    assert called == [*range(8), "later"]


async def test_functions_and_coroutines_share_the_work_budget_of_an_event_loop_iteration():
    budget, done = LoopBudget(1), []

    async def work(who):
        await budget.take()
        done.append(who)

    budget.run(partial(done.append, 0))
    task = asyncio.create_task(work(1))
    await asyncio.sleep(0)
    budget.run(partial(done.append, 2))
    await task
    await pass_iterations()
    assert sorted(done) == [0, 1, 2]
    assert done[0] == 0


async def test_the_error_of_a_deferred_function_is_given_to_on_error_and_does_not_delay_the_next_ones():
    failed, called = [], []
    budget = LoopBudget(1, on_error=failed.append)
    budget.run(partial(called.append, "first"))
    budget.run(lambda: 1 // 0)
    budget.run(partial(called.append, "behind it"))
    await pass_iterations()
    assert called == ["first", "behind it"]
    assert [type(error) for error in failed] == [ZeroDivisionError]


async def test_the_error_of_a_deferred_function_goes_to_the_event_loops_exception_handler_by_default():
    told = []
    asyncio.get_running_loop().set_exception_handler(lambda loop, context: told.append(context["exception"]))
    budget = LoopBudget(1)
    budget.run(lambda: None)
    budget.run(lambda: 1 // 0)
    await pass_iterations()
    assert [type(error) for error in told] == [ZeroDivisionError]


async def test_finish_calls_all_functions_deferred_to_later_event_loop_iterations_at_once():
    budget, called = LoopBudget(2), []
    for number in range(9):
        budget.run(partial(called.append, number))
    budget.finish()
    assert called == list(range(9))
    await pass_iterations()
    assert called == list(range(9))
