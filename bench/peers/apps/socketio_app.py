"""Presence with Socket.IO: a room per user, in one process, under uvicorn in the benchmark's cache of peers."""

import os
import time

import jwt
import socketio

SECRET = os.environ["PEER_SECRET"]
server = socketio.AsyncServer(async_mode="asgi", ping_interval=600, ping_timeout=600)
users = {}
statuses = {}
seen = {}


@server.event
async def connect(sid, _environ, auth) -> None:
    users[sid] = jwt.decode(auth["token"], SECRET, algorithms=["HS256"])["sub"]


@server.event
async def disconnect(sid) -> None:
    users.pop(sid, None)


@server.event
async def heartbeat(sid) -> None:
    seen[users[sid]] = time.time()


@server.event
async def subscribe(sid, targets):
    for target in targets:
        await server.enter_room(sid, f"watch.{target}")
    return [statuses.get(target) for target in targets]


@server.event
async def change(sid, status) -> None:
    user = users[sid]
    statuses[user] = status
    await server.emit("status", status, room=f"watch.{user}")


app = socketio.ASGIApp(server, static_files={"/healthz": {"content_type": "text/plain", "filename": os.devnull}})
