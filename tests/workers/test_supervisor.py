"""A supervisor with fake workers that behave as configured."""

import asyncio
import json
import os
import resource
import signal
import sys
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs

from herenow.errors import ConfigurationError
from herenow.workers import supervisor as supervising
from herenow.workers.restarts import Restarts
from herenow.workers.supervisor import AWAY, GivenUp, Supervisor

FAKE = Path(__file__).with_name("fake_worker.py")
PATIENCE = 30.0


class Rig:
    """A supervisor, and the notes of its workers."""

    def __init__(self, folder, *, workers=2, hung_after=60.0):
        self.folder = folder
        self.announced = 0
        self.program = folder / "program"
        self.program.symlink_to(sys.executable)
        self.supervisor = Supervisor(
            [str(self.program), "-S", str(FAKE), str(folder)],
            workers=workers,
            address=("127.0.0.1", 4711),
            hung_after=hung_after,
            on_ready=self._ready,
            make_restarts=lambda: Restarts(pauses=(0.0, 0.01, 0.02)),
        )
        self.behave("good")
        self.running: Any = None
        self.logs: Any = []

    def _ready(self):
        self.announced += 1

    def behave(self, how):
        """For workers started from now on."""
        (self.folder / "behaviour").write_text(how)

    def noted(self, word):
        notes = self.folder / "notes"
        lines = notes.read_text().splitlines() if notes.exists() else []
        return [line.partition(" ")[2] for line in lines if line.split(" ")[0] == word]

    def logged(self, event):
        return [line for line in self.logs if line["event"] == event]

    async def until(self, wanted):
        async with asyncio.timeout(PATIENCE):
            while not wanted():
                await asyncio.sleep(0.01)

    async def up(self):
        await self.until(lambda: self.announced == 1)
        return [int(pid) for pid in self.noted("start")]

    async def end(self):
        self.supervisor.stop()
        async with asyncio.timeout(PATIENCE):
            return await self.running


@pytest.fixture
async def rig(tmp_path):
    async with supervised(tmp_path) as rig:
        yield rig


@asynccontextmanager
async def supervised(folder, **how):
    with capture_logs() as logs:
        rig = Rig(folder, **how)
        rig.logs = logs
        rig.running = asyncio.create_task(rig.supervisor.run())
        try:
            yield rig
        finally:
            if not rig.running.done():
                await rig.end()


@contextmanager
def no_descriptor_left():
    """Open descriptors stay open."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (0, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def alive(pid):
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


async def test_the_supervisor_starts_all_numbered_workers_and_announces_readiness_once(rig):
    pids = await rig.up()
    assert len(pids) == 2
    await rig.until(lambda: len(rig.noted("place")) == 2)
    assert sorted(rig.noted("place")) == ["1 2 127.0.0.1 4711", "2 2 127.0.0.1 4711"]
    assert await rig.end() == 0
    assert not any(map(alive, pids))
    assert sorted(map(int, rig.noted("end"))) == sorted(pids)


async def test_a_killed_worker_is_restarted_and_the_other_workers_are_told_that_it_died(rig):
    pids = await rig.up()
    os.kill(pids[0], signal.SIGKILL)
    await rig.until(lambda: len(rig.noted("start")) == 3)
    await rig.until(lambda: rig.noted("dead"))
    assert set(rig.noted("dead")) == {f"epoch-{pids[0]}"}
    assert alive(pids[1])
    assert rig.announced == 1


async def test_after_all_workers_were_killed_the_first_new_one_is_told_that_they_died(tmp_path):
    async with supervised(tmp_path) as rig:
        pids = await rig.up()
        rig.behave("slow")
        for pid in pids:
            os.kill(pid, signal.SIGKILL)
        await rig.until(lambda: len(rig.noted("start")) == 4)
        assert rig.noted("dead") == []
        rig.behave("good")
        os.kill(int(rig.noted("start")[-1]), signal.SIGKILL)
        await rig.until(lambda: rig.noted("dead"))
        told = " ".join(rig.noted("dead")).split()
        assert {f"epoch-{pid}" for pid in pids} <= set(told)


async def test_a_worker_that_keeps_dying_quickly_ends_the_supervisor_with_an_explanation(tmp_path):
    async with supervised(tmp_path) as rig:
        pids = await rig.up()
        rig.behave("exit 3")
        os.kill(pids[1], signal.SIGKILL)
        with pytest.raises(
            GivenUp, match=r"Worker [12] ended at once, 4 times in a row, the last time with exit code 3"
        ):
            await asyncio.wait_for(rig.running, PATIENCE)
        assert not any(map(alive, pids))
        assert rig.noted("end") == [str(pids[0])]  # in order


async def test_settings_that_became_wrong_end_the_supervisor_with_a_configuration_error(tmp_path):
    async with supervised(tmp_path) as rig:
        pids = await rig.up()
        rig.behave("exit 2")
        os.kill(pids[0], signal.SIGKILL)
        with pytest.raises(ConfigurationError, match="exit code 2"):
            await asyncio.wait_for(rig.running, PATIENCE)


async def test_a_worker_without_its_store_or_database_is_restarted_while_other_workers_live(rig):
    pids = await rig.up()
    rig.behave(f"exit {AWAY}")
    os.kill(pids[0], signal.SIGKILL)
    await rig.until(lambda: len(rig.noted("start")) > 12)
    assert not rig.running.done()
    rig.behave("good")
    await rig.until(lambda: rig.noted("dead"))
    assert alive(pids[1])


async def test_if_no_worker_lives_and_none_can_reach_its_store_or_database_the_supervisor_ends(tmp_path):
    async with supervised(tmp_path, workers=2) as rig:
        pids = await rig.up()
        rig.behave(f"exit {AWAY}")
        for pid in pids:
            os.kill(pid, signal.SIGKILL)
        with pytest.raises(GivenUp, match=f"exit code {AWAY}"):
            await asyncio.wait_for(rig.running, PATIENCE)


async def test_the_supervisor_retries_a_worker_that_cannot_be_spawned_and_logs_every_try(rig):
    pids = await rig.up()
    with no_descriptor_left():
        os.kill(pids[0], signal.SIGKILL)
        await rig.until(lambda: len(rig.logged("worker.not_started")) >= 3)
    tries = rig.logged("worker.not_started")
    assert {line["worker"] for line in tries} <= {1, 2}
    assert "Too many open files" in tries[0]["error"]
    assert [line["again_in"] for line in tries[:3]] == [0.01, 0.02, 0.02]
    await rig.until(lambda: f"epoch-{pids[0]}" in " ".join(rig.noted("dead")))
    await rig.until(lambda: len(rig.noted("start")) == 3)
    assert alive(pids[1])
    assert await rig.end() == 0


async def test_a_reload_reaches_every_worker_and_none_is_replaced(rig):
    pids = await rig.up()
    rig.supervisor.reload_all()
    await rig.until(lambda: len(rig.noted("reload")) == 2)
    assert sorted(map(int, rig.noted("reload"))) == sorted(pids)
    assert all(map(alive, pids))


async def test_an_old_worker_stays_while_its_replacement_cannot_be_spawned(rig):
    pids = await rig.up()
    rig.program.unlink()
    rig.supervisor.replace_all()
    await rig.until(lambda: len(rig.logged("worker.not_started")) >= 3)
    assert all(map(alive, pids))
    rig.program.symlink_to(sys.executable)
    await rig.until(lambda: rig.logged("workers.replaced"))
    assert sorted(map(int, rig.noted("leave"))) == sorted(pids)


async def test_a_worker_that_dies_while_being_replaced_gets_only_one_successor(rig):
    """The restarting task and the replacing task both wait; the second one must start no additional worker."""
    pids = await rig.up()
    rig.program.unlink()
    rig.supervisor.replace_all()
    await rig.until(lambda: rig.logged("worker.not_started"))
    for pid in pids:
        os.kill(pid, signal.SIGKILL)
    await rig.until(lambda: len(rig.logged("worker.ended")) == 2)
    rig.program.symlink_to(sys.executable)
    await rig.until(lambda: rig.logged("workers.replaced"))
    await rig.until(lambda: len([pid for pid in rig.noted("start") if alive(int(pid))]) == 2)
    assert await rig.end() == 0


async def test_the_supervisor_ends_with_an_explanation_if_the_first_worker_cannot_be_spawned(tmp_path):
    rig = Rig(tmp_path)
    rig.program.unlink()
    with pytest.raises(GivenUp, match=r"Worker 1 could not be started: .*No such file or directory.*\.$"):
        await asyncio.wait_for(rig.supervisor.run(), PATIENCE)


async def test_an_internal_error_of_the_supervisor_ends_it_instead_of_running_fewer_workers(tmp_path, monkeypatch):
    async with supervised(tmp_path) as rig:
        pids = await rig.up()
        monkeypatch.setattr(rig.supervisor, "_pause", lambda *_: 1 / 0)
        os.kill(pids[0], signal.SIGKILL)
        with pytest.raises(GivenUp, match=r"The supervisor failed \(worker [12]\): ZeroDivisionError"):
            await asyncio.wait_for(rig.running, PATIENCE)
        [line] = rig.logged("supervisor.failed")
        assert isinstance(line["exc_info"], ZeroDivisionError)
        assert not alive(pids[1])


async def test_an_error_while_the_supervisor_reads_from_a_worker_ends_it(tmp_path, monkeypatch):
    async with supervised(tmp_path) as rig:
        pids = await rig.up()
        monkeypatch.setattr(rig.supervisor, "_collect_reports", lambda *_: 1 / 0)
        (rig.folder / f"ask-{pids[1]}").touch()
        with pytest.raises(GivenUp, match=r"The supervisor failed \(attend\)"):
            await asyncio.wait_for(rig.running, PATIENCE)
        assert not any(map(alive, pids))


async def test_an_error_while_announcing_readiness_does_not_end_the_workers(tmp_path):
    async with supervised(tmp_path) as rig:
        rig.supervisor._on_ready = lambda: os.write(-1, b"ready")
        await rig.until(lambda: rig.logged("workers.unannounced"))
        assert not rig.running.done()
        assert await rig.end() == 0


@pytest.mark.parametrize(("how", "code"), [("exit 2", 2), ("exit 1", 1), (f"exit {AWAY}", 1)])
async def test_the_supervisor_starts_no_other_worker_if_the_first_one_does_not_start(tmp_path, how, code):
    rig = Rig(tmp_path)
    rig.behave(how)
    assert await asyncio.wait_for(rig.supervisor.run(), PATIENCE) == code
    assert len(rig.noted("start")) == 1
    assert rig.announced == 0


async def test_the_supervisor_ends_with_an_explanation_if_the_first_worker_is_killed_before_it_is_ready(tmp_path):
    rig = Rig(tmp_path)
    rig.behave("crash")
    with pytest.raises(GivenUp, match="Worker 1 ended before it was ready, with signal SIGKILL"):
        await asyncio.wait_for(rig.supervisor.run(), PATIENCE)


async def test_a_worker_whose_event_loop_hangs_is_killed_and_replaced(tmp_path, monkeypatch):
    monkeypatch.setattr(supervising, "CHECK_EVERY", 0.05)
    async with supervised(tmp_path, hung_after=1.0) as rig:
        pids = await rig.up()
        os.kill(pids[1], signal.SIGSTOP)
        await rig.until(lambda: len(rig.noted("start")) >= 3)
        await rig.until(lambda: f"epoch-{pids[1]}" in " ".join(rig.noted("dead")))
        assert not alive(pids[1])


async def test_replacing_all_workers_starts_each_new_worker_before_it_ends_the_old_one(rig):
    pids = await rig.up()
    rig.supervisor.replace_all()
    await rig.until(lambda: len(rig.noted("leave")) == 2)
    await rig.until(lambda: {"event": "workers.replaced", "log_level": "info"} in rig.logs)
    lines = [line.split() for line in (rig.folder / "notes").read_text().splitlines()]
    order = [(word, int(rest[0])) for word, *rest in lines if word in ("start", "leave")]
    new = [int(pid) for pid in rig.noted("start")[2:]]
    first, second = (int(pid) for pid in rig.noted("leave"))
    assert sorted((first, second)) == sorted(pids)
    assert order[2:] == [("start", new[0]), ("leave", first), ("start", new[1]), ("leave", second)]
    assert all(map(alive, new))
    assert await rig.end() == 0


async def test_the_old_workers_stay_if_a_replacement_worker_does_not_start(rig):
    pids = await rig.up()
    rig.behave("exit 2")
    rig.supervisor.replace_all()
    await rig.until(lambda: any(line["event"] == "workers.stay" for line in rig.logs))
    assert len(rig.noted("start")) == 3
    assert all(map(alive, pids))
    rig.behave("good")
    rig.supervisor.replace_all()
    await rig.until(lambda: len(rig.noted("leave")) == 2)


async def test_a_worker_that_does_not_stop_is_killed_by_the_supervisor_after_a_timeout(tmp_path, monkeypatch):
    monkeypatch.setattr(supervising, "STOPPING", 0.3)
    rig = Rig(tmp_path)
    rig.behave("stubborn")
    rig.running = asyncio.create_task(rig.supervisor.run())
    pids = await rig.up()
    with capture_logs() as logs:
        assert await rig.end() == 1
    assert [line["event"] for line in logs] == ["worker.stuck"] * 2
    assert not any(map(alive, pids))


async def test_a_worker_can_request_the_status_reports_of_all_workers_from_the_supervisor(rig):
    pids = await rig.up()
    (rig.folder / f"ask-{pids[1]}").touch()
    await rig.until(lambda: rig.noted("answer"))
    told = json.loads(rig.noted("answer")[0])
    assert [(worker, restarts) for worker, restarts, _ in told] == [(1, 0), (2, 0)]
    assert sorted(int(body) for _, _, body in told) == sorted(pids)


async def test_a_worker_that_does_not_answer_the_supervisor_has_an_empty_status_report(tmp_path, monkeypatch):
    monkeypatch.setattr(supervising, "ANSWER", 0.2)
    async with supervised(tmp_path) as rig:
        pids = await rig.up()
        os.kill(pids[0], signal.SIGSTOP)
        (rig.folder / f"ask-{pids[1]}").touch()
        await rig.until(lambda: rig.noted("answer"))
        os.kill(pids[0], signal.SIGCONT)
        told = json.loads(rig.noted("answer")[0])
        assert sorted(body for _, _, body in told if body) == [str(pids[1])]
        assert len(told) == 2


async def test_workers_end_when_their_supervisor_is_killed(tmp_path):
    script = f"""
import asyncio, sys
from herenow.workers.supervisor import Supervisor
supervisor = Supervisor([sys.executable, "-S", {str(FAKE)!r}, {str(tmp_path)!r}], workers=2,
                        address=("127.0.0.1", 1), hung_after=60, on_ready=lambda: print("up", flush=True))
asyncio.run(supervisor.run())
"""
    rig = Rig(tmp_path)
    process = await asyncio.create_subprocess_exec(sys.executable, "-c", script, stdout=asyncio.subprocess.PIPE)
    assert process.stdout is not None
    async with asyncio.timeout(PATIENCE):
        assert process.stdout is not None
        assert await process.stdout.readline() == b"up\n"
    process.kill()
    await process.wait()
    pids = [int(pid) for pid in rig.noted("start")]
    await rig.until(lambda: len(rig.noted("alone")) == 2)
    await rig.until(lambda: not any(map(alive, pids)))
