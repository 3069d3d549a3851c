"""Who has much to do takes turns with everything else in the process."""

import asyncio

from herenow.kit.loop_budget import A_TURN, Turns


class Clockwork:
    """Counts the turns of the loop."""

    def __init__(self):
        self.turn = 0
        self._task = asyncio.create_task(self._count())

    async def _count(self):
        while True:
            await asyncio.sleep(0)
            self.turn += 1

    def stop(self):
        self._task.cancel()


async def told(weights):
    """(who, in which turn), in their order."""
    turns, clock, done = Turns(), Clockwork(), []

    async def work(who, units):
        await turns.take(units)
        done.append((who, clock.turn))

    await asyncio.gather(*(work(who, units) for who, units in enumerate(weights)))
    clock.stop()
    return done


async def test_much_work_is_done_in_the_order_it_came_and_a_little_of_it_per_turn():
    done = await told([200] * 20)
    assert [who for who, _ in done] == list(range(20))
    per_turn = [sum(turn == each for _, turn in done) for each in {turn for _, turn in done}]
    assert max(per_turn) <= A_TURN // 200


async def test_many_small_pieces_share_a_turn():
    done = await told([1] * A_TURN)
    assert len({turn for _, turn in done}) == 1


async def test_what_is_more_than_a_turn_is_one_of_its_own():
    done = await told([1, 10 * A_TURN, 10 * A_TURN, 1, 1])
    turns = dict(done)
    assert turns[0] < turns[1] < turns[2] < turns[3] == turns[4]


async def test_who_is_alone_does_not_wait():
    clock, turns = Clockwork(), Turns()
    for _ in range(3):
        before = clock.turn
        await turns.take(A_TURN)
        assert clock.turn == before
        for _ in range(2):
            await asyncio.sleep(0)
    clock.stop()


async def test_who_gives_up_takes_nobodys_turn():
    turns, done = Turns(), []

    async def work(who):
        await turns.take(A_TURN)
        done.append(who)

    tasks = [asyncio.create_task(work(who)) for who in range(5)]
    await asyncio.sleep(0)
    for who in (1, 2, 4):
        tasks[who].cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    assert done == [0, 3]
    await work(5)
    assert done == [0, 3, 5]
