"""Reads that share a worker thread."""

import asyncio
import threading
from functools import partial

import pytest
from sqlalchemy import Connection, StaticPool, create_engine
from sqlalchemy.exc import OperationalError

from herenow.errors import Unavailable
from herenow.ledgers.sqlite.worker_threads import TOGETHER, WorkerThreads


@pytest.fixture
async def threads():
    """Worker threads with one thread."""
    engine = create_engine("sqlite://", poolclass=StaticPool, connect_args={"check_same_thread": False})
    threads = WorkerThreads(engine, 1, "threads")
    yield threads
    await threads.close()


async def test_database_reads_cancelled_before_they_begin_are_not_executed(threads):
    held_up, answered = threading.Event(), []
    first = asyncio.ensure_future(threads.ask(lambda _: held_up.wait()))
    await asyncio.sleep(0.05)
    asked = [asyncio.ensure_future(threads.ask(answered.append)) for _ in range(3 * TOGETHER)]
    await asyncio.sleep(0.05)  # they are queued for the thread
    for each in asked:
        each.cancel()
    await asyncio.gather(*asked, return_exceptions=True)
    held_up.set()
    assert await threads.ask(lambda _: "fresh") == "fresh"
    assert await first
    assert answered == []


async def test_a_failing_database_read_does_not_affect_the_reads_after_it(threads):
    answers = await asyncio.gather(
        threads.ask(lambda c: c.exec_driver_sql("SELECT 1").scalar()),
        threads.ask(lambda c: c.exec_driver_sql("SELECT nonsense").scalar()),
        threads.ask(lambda c: c.exec_driver_sql("SELECT 2").scalar()),
        return_exceptions=True,
    )
    assert (answers[0], answers[2]) == (1, 2)
    assert isinstance(answers[1], OperationalError)
    assert await threads.ask(lambda c: c.exec_driver_sql("SELECT 3").scalar()) == 3


async def test_a_database_read_sees_the_transaction_before_it_on_the_same_connection(threads):
    await threads.run(lambda c: c.exec_driver_sql("CREATE TABLE seen (at INTEGER)"))
    for at in range(3):
        insert = f"INSERT INTO seen VALUES ({at})"
        await threads.run(partial(Connection.exec_driver_sql, statement=insert))
        assert await threads.ask(lambda c: c.exec_driver_sql("SELECT max(at) FROM seen").scalar()) == at


async def test_database_reads_requested_shortly_after_each_other_are_executed_together(threads, monkeypatch):
    monkeypatch.setattr(threads._questions, "_spacing", 0.5)
    sizes, answer = [], threads._answer

    def answered(together):
        sizes.append(len(together))
        return answer(together)

    monkeypatch.setattr(threads, "_answer", answered)
    assert await threads.ask(lambda _: "first") == "first"
    asked = []
    for number in range(3):  # one per loop iteration, as requests arrive
        asked.append(asyncio.ensure_future(threads.ask(partial(number_itself, number))))
        await asyncio.sleep(0)
    assert await asyncio.gather(*asked) == [0, 1, 2]
    assert sizes == [1, 3]


async def test_a_database_transaction_cancelled_before_it_begins_is_not_executed(threads):
    held_up = threading.Event()
    first = asyncio.ensure_future(threads.run(lambda _: held_up.wait()))
    begun = []
    second = asyncio.ensure_future(threads.run(begun.append))
    await asyncio.sleep(0.01)
    second.cancel()
    await asyncio.gather(second, return_exceptions=True)
    held_up.set()
    assert await first
    assert await threads.run(lambda _: "next") == "next"
    assert begun == []


async def test_closing_the_database_threads_answers_all_reads_and_leaves_no_thread():
    engine = create_engine("sqlite://", poolclass=StaticPool, connect_args={"check_same_thread": False})
    threads = WorkerThreads(engine, 2, "closing")
    asked = [asyncio.ensure_future(threads.ask(partial(number_itself, n))) for n in range(2 * TOGETHER)]
    await asyncio.sleep(0)
    await threads.close()
    assert await asyncio.gather(*asked) == list(range(2 * TOGETHER))
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("closing")]
    with pytest.raises(Unavailable):
        await threads.ask(lambda _: None)


def number_itself(number, _connection):
    return number
