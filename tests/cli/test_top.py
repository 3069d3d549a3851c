"""`herenow top` against real nodes: problems first, in words; one line and an exit code if no node answers."""

import asyncio
import json
import os
import pty
import re
import signal
import socket
import struct
import sys
import termios
from contextlib import asynccontextmanager, suppress
from fcntl import ioctl

import psutil
import pytest
import pytest_asyncio
from tests.processes import PATIENCE, Server, token
from tests.redis_servers import running

from herenow.cli.top.top_command import ENTER, LEAVE

pytestmark = pytest.mark.asyncio(loop_scope="module")


@asynccontextmanager
async def node(folder, **settings):
    server = await Server(folder, settings).start()
    try:
        yield server
    finally:
        if server.runs:
            os.kill(server.pid, signal.SIGCONT)
        await server.kill()


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def server(tmp_path_factory):
    """A server that tests must not damage."""
    async with node(tmp_path_factory.mktemp("node")) as started:
        yield started


async def top(*arguments, **options):
    """(exit code, output, errors)"""
    process = await begun(*arguments, **options)
    async with asyncio.timeout(PATIENCE):
        out, err = await process.communicate()
    return process.returncode, out.decode(), err.decode()


async def begun(*arguments, **options):
    pipes = {"stdin": asyncio.subprocess.DEVNULL, "stdout": asyncio.subprocess.PIPE, "stderr": asyncio.subprocess.PIPE}
    command = (sys.executable, "-m", "herenow.cli", "top", *arguments)
    return await asyncio.create_subprocess_exec(*command, **{**pipes, **options})


async def test_herenow_top_shows_that_a_node_is_well_and_its_figures(server):
    async with server.client("ana"), server.client("bo"):
        stats = await server.rest("GET", "/stats")
        while stats["users"]["online"] != 2 or stats["degraded"]:  # a busy machine makes it late for a moment
            await asyncio.sleep(0.05)
            stats = await server.rest("GET", "/stats")
        code, out, err = await top(server.url, "--once")
    assert (code, err) == (0, "")
    head, verdict, *rest = out.splitlines()
    assert server.url in head
    assert verdict == "● All is well."
    assert "users       2 online · 0 busy · 0 away" in rest
    assert "clients     2 connections · 0 streams · 2 sessions" in rest
    assert "\x1b" not in out


async def test_herenow_top_prints_json_on_request(server):
    code, out, _ = await top(server.url, "http://127.0.0.1:1", "--once", "--json")
    assert code == 1
    [line] = out.splitlines()
    told = json.loads(line)
    well, away = told["nodes"]
    assert (well["url"], well["error"], away["stats"]) == (server.url, None, None)
    assert well["stats"]["members"][0]["state"] == "well"
    [problem] = told["problems"]
    assert problem["nodes"] == ["http://127.0.0.1:1"]


async def test_herenow_top_reports_an_unreachable_node_in_one_line_with_exit_code_1(tmp_path):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # bound, but not listening
        code, out, err = await top(f"http://127.0.0.1:{taken.getsockname()[1]}", "--once")
    assert (code, out) == (1, "")
    assert re.fullmatch(r"Error: http://\S+ cannot be reached: nothing listens there\.\n", err)


async def test_herenow_top_distinguishes_a_frozen_node_from_an_unreachable_one(tmp_path):
    async with node(tmp_path) as server:
        os.kill(server.pid, signal.SIGSTOP)
        code, _, err = await top(server.url, "--once")
    assert code == 1
    assert "accepts connections but does not answer" in err
    assert "frozen" in err


@pytest.mark.parametrize(
    ("given", "said"),
    [(token("ana"), "forbidden"), ("rubbish", "token_malformed"), (token("ops", "service", ttl=-10), "token_expired")],
    ids=["a user's", "rubbish", "expired"],
)
async def test_herenow_top_reports_a_wrong_token_in_one_line_with_exit_code_2(server, given, said):
    code, out, err = await top(server.url, "--once", "--token", given)
    assert (code, out) == (2, "")
    assert err.startswith(f"Error: {server.url} refuses the token ({said})")
    assert err.count("\n") == 1


@pytest.mark.parametrize("wrong", ["ftp://127.0.0.1", "http://", "", "http://127.0.0.1:x", "http://127.0.0.1:0"])
async def test_herenow_top_exits_with_2_on_a_wrong_address(wrong):
    code, _, err = await top(wrong, "--once")
    assert code == 2
    assert "is not the address of a node" in err


async def test_herenow_top_exits_with_2_if_another_program_answers():
    async def answer(reader, writer):
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\nconnection: close\r\n\r\n{}")
        writer.close()

    async with await asyncio.start_server(answer, "127.0.0.1", 0) as other:
        port = other.sockets[0].getsockname()[1]
        code, _, err = await top(f"127.0.0.1:{port}", "--once")
    assert code == 2
    assert "is not a herenow server" in err


async def test_herenow_top_on_a_pipe_prints_until_it_is_interrupted(server):
    process = await begun(server.url, "--every", "0.2")
    for _ in range(3):
        while not (await asyncio.wait_for(process.stdout.readline(), PATIENCE)).startswith(b"herenow top"):
            pass
    process.send_signal(signal.SIGINT)
    async with asyncio.timeout(PATIENCE):
        _, err = await process.communicate()
    assert (process.returncode, err) == (0, b"")


async def test_herenow_top_ends_without_an_error_when_its_pipe_is_closed(server):
    process = await begun(server.url, "--every", "0.2")
    await asyncio.wait_for(process.stdout.readline(), PATIENCE)
    process._transport.get_pipe_transport(1).close()
    async with asyncio.timeout(PATIENCE):
        err = await process.stderr.read()
        code = await process.wait()
    assert (code, err) == (0, b"")


async def test_herenow_top_shows_a_node_going_away_and_coming_back(tmp_path):
    async with node(tmp_path) as server:
        process = await begun(server.url, "--every", "0.2", "--json")

        async def until(wanted):
            async with asyncio.timeout(PATIENCE):
                while not wanted(json.loads(await process.stdout.readline())):
                    pass

        await until(lambda told: not told["problems"])
        await server.kill()
        await until(lambda told: told["problems"])
        server._settings["port"] = int(server.url.rpartition(":")[2])
        await server.start()
        await until(lambda told: not told["problems"])
        process.send_signal(signal.SIGTERM)
        await process.communicate()
    assert process.returncode == 0


# --- On a terminal


class Terminal:
    """A pseudo-terminal and what it shows."""

    def __init__(self, rows=30, columns=120):
        self.ours, self.theirs = pty.openpty()
        self.resize(rows, columns)
        os.set_blocking(self.ours, False)
        self.shown = ""

    def resize(self, rows, columns):
        ioctl(self.ours, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    async def until(self, wanted):
        async with asyncio.timeout(PATIENCE):
            while not re.search(wanted, self.shown):
                try:
                    self.shown += os.read(self.ours, 65_536).decode()
                except BlockingIOError:
                    await asyncio.sleep(0.02)

    def close(self):
        os.close(self.ours)
        os.close(self.theirs)


@pytest.fixture
def terminal():
    made = Terminal()
    yield made
    made.close()


@pytest.mark.parametrize("end", ["q", "\x03", "SIGTERM"])
async def test_herenow_top_draws_resizes_and_restores_the_terminal(server, terminal, end):
    before = termios.tcgetattr(terminal.theirs)
    environment = {k: v for k, v in os.environ.items() if k not in ("COLUMNS", "LINES", "NO_COLOR")}
    process = await begun(
        server.url,
        "--every",
        "60",
        stdin=terminal.theirs,
        stdout=terminal.theirs,
        env=environment,
        start_new_session=True,
        preexec_fn=lambda: ioctl(0, termios.TIOCSCTTY, 0),  # the controlling terminal, for Ctrl-C
    )
    await terminal.until("deliveries  ")  # the wide table
    assert terminal.shown.startswith(ENTER)
    assert "\x1b[32m● All is well." in terminal.shown
    terminal.shown = ""
    terminal.resize(8, 40)  # the kernel signals the foreground process
    await terminal.until("more lines")
    drawn = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", terminal.shown).splitlines()
    assert len(drawn) <= 8
    assert max(map(len, drawn)) <= 40
    if end.startswith("SIG"):
        process.send_signal(signal.SIGTERM)
    else:
        os.write(terminal.ours, end.encode())
    async with asyncio.timeout(PATIENCE):
        assert await process.wait() == 0
    await terminal.until(re.escape(LEAVE) + "$")
    assert termios.tcgetattr(terminal.theirs) == before


# --- Several workers


async def test_herenow_top_shows_worker_processes_as_rows_and_reports_one_that_hangs(tmp_path):
    with running() as store:
        async with node(tmp_path, engine=store.url, workers=2) as server:
            async with asyncio.timeout(PATIENCE):
                while (await server.rest("GET", "/stats"))["degraded"]:  # a new store needs a moment
                    await asyncio.sleep(0.2)
            code, out, _ = await top(server.url, "--once")
            assert code == 0, out
            assert "worker 1" in out
            assert "worker 2" in out
            stats = await server.rest("GET", "/stats")
            assert [member["here"] for member in stats["members"]] == [True, True]
            hung = psutil.Process(server.pid).children()[0].pid
            os.kill(hung, signal.SIGSTOP)
            try:
                async with asyncio.timeout(PATIENCE):
                    while True:  # the hanging worker may be the one that is asked
                        code, out, err = await top(server.url, "--once")
                        if "1 of 2 workers do not answer." in out:
                            break
            finally:
                with suppress(ProcessLookupError):
                    os.kill(hung, signal.SIGCONT)
    assert code == 1
