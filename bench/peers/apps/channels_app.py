"""Presence with Django Channels: a consumer, a group per user, channels_redis between them.

Run by daphne or uvicorn in the benchmark's cache of peers. A subscription is a `group_add` for each target, a change a
`group_send` to the group of the changed user, as in the documentation of Channels. Bulk reads are an async view that
loops over GETs.
"""

import json
import os
import time

import django
from django.conf import settings

settings.configure(
    SECRET_KEY=os.environ["PEER_SECRET"],
    ALLOWED_HOSTS=["*"],
    ROOT_URLCONF=__name__,
    INSTALLED_APPS=["channels"],
    MIDDLEWARE=["django.middleware.common.CommonMiddleware"],
    LOGGING_CONFIG=None,
    CHANNEL_LAYERS={
        "default": {
            "BACKEND": os.environ["PEER_LAYER"],
            # redis-py waits 5 s for an answer, and channels_redis blocks in Redis for as long: an idle connection would
            # time out.
            "CONFIG": {"hosts": [os.environ["PEER_REDIS"] + "?socket_timeout=60"]},
        }
    },
)
django.setup()

import jwt  # noqa: E402
import redis.asyncio as redis  # noqa: E402
from channels.generic.websocket import AsyncWebsocketConsumer  # noqa: E402
from channels.routing import ProtocolTypeRouter, URLRouter  # noqa: E402
from django.core.asgi import get_asgi_application  # noqa: E402
from django.http import HttpResponse, JsonResponse  # noqa: E402
from django.urls import path  # noqa: E402

store = redis.Redis.from_url(os.environ["PEER_REDIS"])
statuses = {}


class Presence(AsyncWebsocketConsumer):
    async def connect(self) -> None:
        token = self.scope["query_string"].decode().partition("token=")[2]
        self.user = jwt.decode(token, settings.SECRET_KEY, algorithms=["HS256"])["sub"]
        self.watched = []
        await self.accept()

    async def receive(self, text_data=None, bytes_data=None) -> None:
        frame = json.loads(text_data)
        if frame["type"] == "heartbeat":
            self.seen = time.time()
        elif frame["type"] == "subscribe":
            self.watched += frame["targets"]
            for target in frame["targets"]:
                await self.channel_layer.group_add(f"watch.{target}", self.channel_name)
            await self.send(json.dumps([statuses.get(target) for target in frame["targets"]]))
        else:
            statuses[self.user] = frame["status"]
            event = {"type": "changed", "text": json.dumps(frame["status"])}
            await self.channel_layer.group_send(f"watch.{self.user}", event)

    async def changed(self, event) -> None:
        await self.send(event["text"])

    async def disconnect(self, _code) -> None:
        for target in self.watched:
            await self.channel_layer.group_discard(f"watch.{target}", self.channel_name)


async def healthz(_request):
    return HttpResponse("ok")


async def by_get(request):
    ids = request.GET["user_ids"].split(",")
    return JsonResponse([_shown(user, await store.get(f"status:{user}")) for user in ids], safe=False)


def _shown(user, value):
    return {"user_id": user, **(json.loads(value) if value else {"status": "offline"})}


urlpatterns = [path("healthz", healthz), path("get", by_get)]
application = ProtocolTypeRouter(
    {"http": get_asgi_application(), "websocket": URLRouter([path("ws", Presence.as_asgi())])}
)
