"""An application that answers over real sockets, and that can hang, lie, break off and come back."""

import asyncio
import hashlib
import hmac
import json
from contextlib import asynccontextmanager

SECRET = "a secret that the application shares with us"


class Application:
    def __init__(self):
        self.related = set()
        """Mutual followers, as sorted pairs."""
        self.contacts = {}
        """Sorted pair → until."""
        self.members = set()
        self.lists = {}
        """User → contact list, instead of the one derived from the relations."""
        self.asked = []
        """Every question received, decoded."""
        self.headers = []
        self.behave = self.honest
        """Writes the answer to a question: an async function of the writer and the question."""
        self.poison = None
        """An id that makes the application fail."""
        self._server: asyncio.Server
        self._port = 0
        self._writers = set()

    @property
    def url(self):
        return f"http://127.0.0.1:{self._port}/relations?v=1"

    def relate(self, a, b):
        self.related.add((min(a, b), max(a, b)))

    def part(self, a, b):
        self.related.discard((min(a, b), max(a, b)))

    async def start(self):
        """On the same port as before, if there was one."""
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", self._port)
        self._port = self._server.sockets[0].getsockname()[1]

    async def die(self):
        self._server.close()
        for writer in list(self._writers):
            writer.transport.abort()
        await self._server.wait_closed()

    # Answers

    async def honest(self, writer, question):
        if self.poison is not None and self.poison in json.dumps(question):
            return await answer(writer, {"oops": True}, status=500)
        return await answer(writer, self.answer_to(question))

    def answer_to(self, question):
        match question["ask"]:
            case "between":
                return {"pairs": [self._pair(a, b) for a, b in question["pairs"]]}
            case "contacts":
                return {"lists": [{"user": u, "contacts": self._contacts_of(u)} for u in question["users"]]}
            case "members":
                rows = [(row["room"], row["user"]) for row in question["members"]]
                return {"members": [{"room": r, "user": u, "member": (r, u) in self.members} for r, u in rows]}

    def _pair(self, a, b):
        pair = (min(a, b), max(a, b))
        fact = {"a": a, "b": b, "mutual_follow": pair in self.related, "contact": pair in self.contacts}
        return {**fact, "contact_until": self.contacts[pair]} if pair in self.contacts else fact

    def _contacts_of(self, user):
        if user in self.lists:
            return self.lists[user]
        pairs = [*self.related, *self.contacts]
        return [b if a == user else a for a, b in pairs if user in (a, b)]

    # Minimal HTTP

    async def _serve(self, reader, writer):
        self._writers.add(writer)
        try:
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).decode()
                headers = dict(
                    line.lower().split(": ", 1) if ": " in line else (line, "") for line in head.split("\r\n")[1:]
                )
                body = await reader.readexactly(int(headers["content-length"]))
                if not genuine(headers, body):
                    await answer(writer, {}, status=401)
                    continue
                self.headers.append(headers)
                self.asked.append(json.loads(body))
                await self.behave(writer, self.asked[-1])
        except (asyncio.IncompleteReadError, ConnectionError, asyncio.CancelledError):
            pass  # asyncio's server logs an error for a cancelled handler
        finally:
            self._writers.discard(writer)
            writer.close()

    def questions(self, kind):
        return [question for question in self.asked if question["ask"] == kind]


def genuine(headers, body):
    message = headers["herenow-timestamp"].encode() + b"." + body
    wanted = "v1=" + hmac.new(SECRET.encode(), message, hashlib.sha256).hexdigest()
    return hmac.compare_digest(headers.get("herenow-signature", ""), wanted)


async def answer(writer, value, *, status=200, media="application/json", extra=""):
    body = value if isinstance(value, bytes) else json.dumps(value).encode()
    head = f"HTTP/1.1 {status} X\r\ncontent-type: {media}\r\ncontent-length: {len(body)}\r\n{extra}\r\n"
    writer.write(head.encode() + body)
    await writer.drain()


@asynccontextmanager
async def application():
    app = Application()
    await app.start()
    try:
        yield app
    finally:
        await app.die()
