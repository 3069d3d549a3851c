"""Public profiles: the presence of users with the preference `public`, without a token.

Other users and unknown ids get the same 404. The ETag is a hash of the visible fields only, so that it reveals no more than
the response does.
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
    """GET /public/{user}: read the public profile of a user, without a token. 404 if there is none."""
    user = call.path_user()
    if not call.node.ready and not call.node.draining:
        raise ProtocolError("not_ready", "The node is starting.")
    profile = await call.node.viewing.profile(user)
    if profile is None:
        raise ProtocolError("not_found", "There is no public profile at this address.")
    shown, as_of = profile
    tag = f'W/"{blake2b(shown, digest_size=8).hexdigest()}"'
    if _matches(call.header("if-none-match"), tag):
        return Reply(b"", status=304, headers=(("etag", tag),), cache=CACHE)
    return Reply(with_as_of(shown, as_of), headers=(("etag", tag),), cache=CACHE)


def _matches(given: str | None, tag: str) -> bool:
    """True if the If-None-Match header `given` contains the ETag `tag`, by weak comparison."""
    if given is None:
        return False
    tags = {each.strip().removeprefix("W/") for each in given.split(",")}
    return "*" in tags or tag.removeprefix("W/") in tags


OPERATIONS = (
    Operation(
        "GET",
        "/api/v1/public/{user}",
        read_profile,
        "Read a public profile",
        {
            200: ResponseDoc("The presence that everyone may see. It may be cached for 30 seconds.", StatusAnswer),
            304: ResponseDoc("Not changed since the response whose ETag is in `If-None-Match`."),
        },
        about="For users with the preference `public`. All others, and unknown ids, get the same 404.",
        access=Access.ANYONE,
        codes=("not_found", "not_ready", "unavailable"),
    ),
)
