"""Many commands in portions: how many are in flight, in which order, and deadlines."""

import asyncio
import time
from contextlib import asynccontextmanager, suppress

import pytest

from herenow.engines.redis.client.redis_connection import (
    AHEAD,
    PORTION,
    PORTIONS,
    Address,
    Login,
    Lost,
    connect,
    packed,
)

PING = packed(("PING", "x"))


class SlowServer:
    """Answers only the greeting until `answer` is called; then each PING with its number."""

    def __init__(self) -> None:
        self.heard = 0
        self.news = asyncio.Event()
        self._answered = 0
        self._writer: asyncio.StreamWriter

    async def serve(self, reader, writer):
        self._writer = writer
        unread = b""
        while data := await reader.read(65536):
            unread += data
            if b"SETNAME" in unread:
                writer.write(b"+OK\r\n")
                unread = b""
            self.heard += unread.count(PING)
            unread = unread[unread.count(PING) * len(PING) :]
            self.news.set()

    async def has_heard(self, count):
        async with asyncio.timeout(20):
            while self.heard < count:
                self.news.clear()
                await self.news.wait()

    def answer(self, count):
        self._writer.write(b"".join(b":%d\r\n" % n for n in range(self._answered, self._answered + count)))
        self._answered += count

    async def close(self):
        self._writer.close()
        with suppress(ConnectionError):
            await self._writer.wait_closed()


@asynccontextmanager
async def linked():
    slow = SlowServer()
    server = await asyncio.start_server(slow.serve, "127.0.0.1", 0)
    connection = await connect(Address(*server.sockets[0].getsockname()), Login(), 20)
    try:
        yield slow, connection
    finally:
        connection.close()
        await slow.close()
        server.close()
        await server.wait_closed()


def parts(count):
    """`count` parts of one command each."""
    return ((PING, 1) for _ in range(count))


async def test_many_redis_commands_are_sent_in_portions_with_a_limited_number_unanswered():
    taken: list[list[object]] = []
    async with linked() as (slow, connection):
        asking = asyncio.create_task(
            connection.ask_in_parts(parts(5 * PORTION), 5 * PORTION, taken.append, deadline=20)
        )
        await slow.has_heard(AHEAD * PORTION)
        await asyncio.sleep(0.05)
        assert slow.heard == AHEAD * PORTION
        for more in range(1, 4):
            slow.answer(PORTION)
            await slow.has_heard((AHEAD + more) * PORTION)
            assert len(taken) == more
        slow.answer((5 - 3) * PORTION)
        await asking
    assert [reply for replies in taken for reply in replies] == list(range(5 * PORTION))


async def test_redis_replies_that_arrive_in_pieces_are_processed_in_whole_portions():
    taken: list[list[object]] = []
    async with linked() as (slow, connection):
        asking = asyncio.create_task(
            connection.ask_in_parts(parts(PORTION + 3), PORTION + 3, taken.append, deadline=20)
        )
        await slow.has_heard(PORTION + 3)
        slow.answer(PORTION - 1)
        await asyncio.sleep(0.05)
        assert taken == []
        slow.answer(4)
        await asking
    assert [len(replies) for replies in taken] == [PORTION, 3]


async def test_more_redis_commands_are_sent_in_larger_portions_not_in_more_portions():
    taken: list[list[object]] = []
    total = 10 * PORTIONS * PORTION
    async with linked() as (slow, connection):
        asking = asyncio.create_task(connection.ask_in_parts(parts(total), total, taken.append, deadline=20))
        for portion in range(PORTIONS):
            await slow.has_heard((portion + 1) * total // PORTIONS)
            slow.answer(total // PORTIONS)
        await asking
    assert [len(replies) for replies in taken] == PORTIONS * [total // PORTIONS]


async def test_a_redis_server_that_stops_answering_midway_is_given_up_at_the_deadline():
    async with linked() as (slow, connection):
        taken: list[list[object]] = []
        asking = asyncio.create_task(
            connection.ask_in_parts(parts(5 * PORTION), 5 * PORTION, taken.append, deadline=0.5)
        )
        await slow.has_heard(AHEAD * PORTION)
        slow.answer(PORTION)
        with pytest.raises(Lost, match="in time"):
            await asking
        assert len(taken) == 1
        assert not connection.is_open


async def test_a_pause_of_the_own_process_does_not_count_against_the_deadline_of_redis_commands():
    """Commands sent after the pause have their whole deadline."""
    async with linked() as (slow, connection):
        taken: list[list[object]] = []
        asking = asyncio.create_task(
            connection.ask_in_parts(parts(5 * PORTION), 5 * PORTION, taken.append, deadline=0.5)
        )
        await slow.has_heard(AHEAD * PORTION)
        slow.answer(2 * PORTION)
        time.sleep(0.7)  # noqa: ASYNC251
        for portion in range(AHEAD, 5):
            await slow.has_heard((portion + 1) * PORTION)
            slow.answer(PORTION)
        await asking
        assert connection.is_open
    assert [reply for replies in taken for reply in replies] == list(range(5 * PORTION))


async def test_after_a_pause_of_the_machine_the_redis_server_still_gets_time_to_answer():
    async with linked() as (slow, connection):
        asking = asyncio.create_task(connection.ask([("PING", "x")], deadline=1.0))
        await slow.has_heard(1)
        time.sleep(1.3)  # noqa: ASYNC251 - all of it
        await asyncio.sleep(0.01)
        slow.answer(1)
        assert await asking == [0]


async def test_a_redis_connection_closed_between_replies_raises_lost_and_not_unavailable():
    """Some of it was sent."""
    async with linked() as (slow, connection):
        taken: list[list[object]] = []
        asking = asyncio.create_task(
            connection.ask_in_parts(parts(5 * PORTION), 5 * PORTION, taken.append, deadline=20)
        )
        await slow.has_heard(AHEAD * PORTION)
        slow.answer(PORTION)
        await slow.has_heard((AHEAD + 1) * PORTION)
        await slow.close()
        with pytest.raises(Lost):
            await asking
        assert len(taken) == 1


async def test_another_caller_of_a_redis_connection_gets_its_own_reply_while_many_commands_are_sent():
    async with linked() as (slow, connection):
        taken: list[list[object]] = []
        asking = asyncio.create_task(
            connection.ask_in_parts(parts(4 * PORTION), 4 * PORTION, taken.append, deadline=20)
        )
        await slow.has_heard(AHEAD * PORTION)
        other = asyncio.create_task(connection.ask([("PING", "x")], 20))
        await slow.has_heard(AHEAD * PORTION + 1)
        slow.answer(AHEAD * PORTION + 1)
        await slow.has_heard(4 * PORTION + 1)
        slow.answer(4 * PORTION - AHEAD * PORTION)
        await asking
        assert await other == [AHEAD * PORTION]
    assert sum(len(replies) for replies in taken) == 4 * PORTION
