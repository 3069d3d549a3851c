"""A simple presence server with Starlette: one process, with the viewers of each user in a dictionary.

Run by uvicorn in the benchmark's cache of peers, not by herenow's interpreter. It checks a token, accepts heartbeats,
subscriptions and changes, and answers bulk reads from Redis, one GET per user (or one MGET for all).
"""

import json
import os
import time
from collections import defaultdict

import jwt
import redis.asyncio as redis
from starlette.applications import Starlette
from starlette.responses import JSONResponse, PlainTextResponse
from starlette.routing import Route, WebSocketRoute
from starlette.websockets import WebSocket, WebSocketDisconnect

SECRET = os.environ["PEER_SECRET"]
store = redis.Redis.from_url(os.environ["PEER_REDIS"])
watchers = defaultdict(set)
statuses = {}
seen = {}


async def presence(socket: WebSocket) -> None:
    user = jwt.decode(socket.query_params["token"], SECRET, algorithms=["HS256"])["sub"]
    await socket.accept()
    watched = []
    try:
        while True:
            frame = json.loads(await socket.receive_text())
            if frame["type"] == "heartbeat":
                seen[user] = time.time()
            elif frame["type"] == "subscribe":
                watched += frame["targets"]
                for target in frame["targets"]:
                    watchers[target].add(socket)
                await socket.send_text(json.dumps([statuses.get(target) for target in frame["targets"]]))
            else:
                statuses[user] = frame["status"]
                text = json.dumps(frame["status"])
                for watcher in tuple(watchers[user]):
                    await watcher.send_text(text)
    except WebSocketDisconnect:
        for target in watched:
            watchers[target].discard(socket)


async def by_get(request):
    ids = request.query_params["user_ids"].split(",")
    return JSONResponse([_shown(user, await store.get(f"status:{user}")) for user in ids])


async def by_mget(request):
    ids = request.query_params["user_ids"].split(",")
    values = await store.mget([f"status:{user}" for user in ids])
    return JSONResponse([_shown(user, value) for user, value in zip(ids, values, strict=True)])


def _shown(user, value):
    return {"user_id": user, **(json.loads(value) if value else {"status": "offline"})}


async def healthz(_request):
    return PlainTextResponse("ok")


app = Starlette(
    routes=[Route("/healthz", healthz), Route("/get", by_get), Route("/mget", by_mget), WebSocketRoute("/ws", presence)]
)
