"""What may the whole world know? The presence of those who want that, for a web page that anybody can open.

Everybody else, and whoever does not exist, is the same 404. An answer may be kept for half a minute. Its ETag is made of
what the answer shows and of nothing else, so it tells no more than the answer does.
"""

from __future__ import annotations

from hashlib import blake2b

from starlette.responses import Response

from herenow.api.description.operations import Access, Operation, ResponseDoc
from herenow.api.http.request import Call
from herenow.api.http.responses import Reply
from herenow.errors import ProtocolError
from herenow.wire.answers import StatusAnswer
from herenow.wire.shapes import with_as_of

CACHE = "public, max-age=30"


async def read_profile(call: Call) -> Response:
    """GET /public/{user}"""
    user = call.path_user()
    if not call.node.ready and not call.node.draining:
        raise ProtocolError("not_ready", "The node is starting.")
    profile = await call.node.viewing.profile(user)
    if profile is None:
        raise ProtocolError("not_found", "There is no public profile at this address.")
    shown, as_of = profile
    tag = f'W/"{blake2b(shown, digest_size=8).hexdigest()}"'
    if _knows(call.header("if-none-match"), tag):
        return Reply(b"", status=304, headers=(("etag", tag),), cache=CACHE)
    return Reply(with_as_of(shown, as_of), headers=(("etag", tag),), cache=CACHE)


def _knows(given: str | None, tag: str) -> bool:
    """Weak comparison: what stands between the quotes."""
    if given is None:
        return False
    tags = {each.strip().removeprefix("W/") for each in given.split(",")}
    return "*" in tags or tag.removeprefix("W/") in tags


OPERATIONS = (
    Operation(
        "GET",
        "/api/v1/public/{user}",
        read_profile,
        "A public profile",
        {
            200: ResponseDoc("As anybody may see it; it may be kept for 30 seconds.", StatusAnswer),
            304: ResponseDoc("As it was when you last asked, by `If-None-Match`."),
        },
        about="For users with the preference `public`; everybody else and unknown ids: the same 404.",
        access=Access.ANYONE,
        codes=("not_found", "not_ready", "unavailable"),
    ),
)
