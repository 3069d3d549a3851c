"""The relation graph: services read and write follows, contacts and room members, one by one or in bulk."""

from __future__ import annotations

from starlette.responses import Response

from herenow.api.description.operations import Access, BodyDoc, Media, Operation, ResponseDoc
from herenow.api.http.request import Call, plain_id, user_id
from herenow.api.http.request_body import Decoder
from herenow.api.http.responses import json_response, no_content
from herenow.api.request_shapes import ChangedBody, ContactBody, RelationLine
from herenow.errors import ProtocolError
from herenow.ports import LedgerChange, RelationRow
from herenow.wire.answers import Contact, Follow, Imported, Member
from herenow.wire.inputs import Scope
from herenow.wire.instants import parse_until
from herenow.wire.relation_rows import BadRow, parse_ndjson, relations_elsewhere

MOST = 10_000
"""Maximum rows of one import: the ledger writes them well within its deadline."""

MOST_WHOLE = 1_000
"""Maximum users and rooms of one request of which everything changed: for each, a node searches all that it has cached."""

_changed = Decoder(ChangedBody, "an object with only the fields pairs, users, members and rooms, each a list")
_contact = Decoder(ContactBody, "an object with only the field until")


# --- Follows ---------------------------------------------------------------------------------------------------------


async def put_follow(call: Call) -> Response:
    """PUT /follows/{a}/{b}: let a follow b."""
    a, b = _two_users(call, "follow")
    return await _write(call, RelationRow("follow", a, b))


async def delete_follow(call: Call) -> Response:
    """DELETE /follows/{a}/{b}: remove the follow from a to b."""
    a, b = _two_users(call, "follow")
    return await _write(call, RelationRow("follow", a, b, remove=True))


async def read_follow(call: Call) -> Response:
    """GET /follows/{a}/{b}: 200 if a follows b, otherwise 404."""
    a, b = _two_users(call, "follow")
    if not await call.node.viewing.follows(a, b):
        raise ProtocolError("not_found", "The first user does not follow the second.")
    return json_response(Follow(a, b))


# --- Contacts --------------------------------------------------------------------------------------------------------


async def put_contact(call: Call) -> Response:
    """PUT /contacts/{a}/{b}: make two users contacts of each other, with an optional end."""
    a, b = _two_users(call, "contact")
    until = parse_until((await call.body(_contact)).until, "until", call.now)
    return await _write(call, RelationRow("contact", a, b, until))


async def delete_contact(call: Call) -> Response:
    """DELETE /contacts/{a}/{b}: end the contact of two users."""
    a, b = _two_users(call, "contact")
    return await _write(call, RelationRow("contact", a, b, remove=True))


async def read_contact(call: Call) -> Response:
    """GET /contacts/{a}/{b}: 200 with the end of the contact if two users are contacts, otherwise 404."""
    a, b = _two_users(call, "contact")
    in_contact, until = await call.node.viewing.contact(a, b)
    if not in_contact:
        raise ProtocolError("not_found", "The two users are not in contact.")
    return json_response(Contact(a, b, until))


# --- Members of rooms ------------------------------------------------------------------------------------------------


async def put_member(call: Call) -> Response:
    """PUT /rooms/{room}/members/{user}: add a user to a room."""
    return await _write(call, RelationRow("room", *_room_and_user(call)))


async def delete_member(call: Call) -> Response:
    """DELETE /rooms/{room}/members/{user}: remove a user from a room."""
    return await _write(call, RelationRow("room", *_room_and_user(call), remove=True))


async def read_member(call: Call) -> Response:
    """GET /rooms/{room}/members/{user}: 200 if the user is a member of the room, otherwise 404."""
    room, user = _room_and_user(call)
    if not await call.node.viewing.is_member(room, user):
        raise ProtocolError("not_found", "The user is not a member of this room, or there is no such room.")
    return json_response(Member(room, user))


# --- Many at once ----------------------------------------------------------------------------------------------------


async def import_rows(call: Call) -> Response:
    """POST /relations: store the relations in the body (NDJSON), all of them or none."""
    rows: list[RelationRow] = []
    for row in parse_ndjson(await call.lines()):
        if isinstance(row, BadRow):
            raise ProtocolError(row.code, f"Line {row.line}: {row.message} Nothing was imported.")
        _kept_here(call, row.kind)
        rows.append(row)
        if len(rows) > MOST:
            raise ProtocolError("too_many_rows", f"A request may have at most {MOST} rows. Nothing was imported.")
    return json_response(Imported(len(rows), await call.node.viewing.apply_relations(rows)))


async def relations_changed(call: Call) -> Response:
    """POST /relations/changed: the application reports relations that changed there, and the nodes read them again."""
    body = await call.body(_changed)
    changes = [
        *(LedgerChange("relation", *_different(user_id(a), user_id(b))) for a, b in body.pairs),
        *(LedgerChange("relations", user_id(user), "") for user in body.users),
        *(LedgerChange("member", plain_id(room, "room"), user_id(user)) for room, user in body.members),
        *(LedgerChange("members", plain_id(room, "room"), "") for room in body.rooms),
    ]
    if len(changes) > MOST or len(body.users) + len(body.rooms) > MOST_WHOLE:
        raise ProtocolError(
            "too_many_rows",
            f"A request may report at most {MOST} changes; at most {MOST_WHOLE} of them may be whole users or rooms.",
        )
    await call.node.viewing.relations_changed(changes)
    return no_content()


def _room_and_user(call: Call) -> tuple[str, str]:
    _kept_here(call, "room")
    return call.path_id("room"), call.path_user()


def _two_users(call: Call, kind: str) -> tuple[str, str]:
    _kept_here(call, kind)
    return _different(call.path_user("a"), call.path_user("b"))


def _kept_here(call: Call, kind: str) -> None:
    if kind not in call.settings.edges_kept_here:
        raise ProtocolError("relations_elsewhere", relations_elsewhere(kind, call.settings.relations))


def _different(a: str, b: str) -> tuple[str, str]:
    if a == b:
        raise ProtocolError("invalid_relation", "A relation needs two different users.")
    return a, b


async def _write(call: Call, row: RelationRow) -> Response:
    await call.node.viewing.apply_relations([row])
    return no_content()


_PUT = {204: ResponseDoc("The relation exists now.")}
_REMOVED = {204: ResponseDoc("The relation does not exist any more.")}
_ELSEWHERE = "relations_elsewhere"
_UNTIL_CODES = ("invalid_instant", "instant_in_past", "instant_too_far")
_FOLLOWS = "/api/v1/follows/{a}/{b}"
_CONTACTS = "/api/v1/contacts/{a}/{b}"
_MEMBERS = "/api/v1/rooms/{room}/members/{user}"

OPERATIONS = (
    Operation(
        "PUT",
        _FOLLOWS,
        put_follow,
        "Add a follow: a follows b",
        _PUT,
        about="Two users who follow each other see each other's presence.",
        access=Access.SERVICE,
        scope=Scope.GRAPH,
        codes=("invalid_relation", _ELSEWHERE),
    ),
    Operation(
        "DELETE",
        _FOLLOWS,
        delete_follow,
        "Remove a follow: a does not follow b",
        _REMOVED,
        access=Access.SERVICE,
        scope=Scope.GRAPH,
        codes=("invalid_relation", _ELSEWHERE),
    ),
    Operation(
        "GET",
        _FOLLOWS,
        read_follow,
        "Check whether a follows b",
        {200: ResponseDoc("a follows b. Otherwise 404.", Follow)},
        access=Access.SERVICE,
        scope=Scope.GRAPH,
        codes=("invalid_relation", "not_found", _ELSEWHERE),
    ),
    Operation(
        "PUT",
        _CONTACTS,
        put_contact,
        "Add a contact between a and b",
        _PUT,
        about="For example an open conversation. It works in both directions and may have an end.",
        access=Access.SERVICE,
        scope=Scope.GRAPH,
        body=BodyDoc(ContactBody, required=False),
        codes=("invalid_relation", _ELSEWHERE, *_UNTIL_CODES),
    ),
    Operation(
        "DELETE",
        _CONTACTS,
        delete_contact,
        "Remove the contact between a and b",
        _REMOVED,
        access=Access.SERVICE,
        scope=Scope.GRAPH,
        codes=("invalid_relation", _ELSEWHERE),
    ),
    Operation(
        "GET",
        _CONTACTS,
        read_contact,
        "Check whether a and b are in contact",
        {200: ResponseDoc("They are in contact, and until when. Otherwise 404.", Contact)},
        access=Access.SERVICE,
        scope=Scope.GRAPH,
        codes=("invalid_relation", "not_found", _ELSEWHERE),
    ),
    Operation(
        "PUT",
        _MEMBERS,
        put_member,
        "Add a user to a room",
        _PUT,
        access=Access.SERVICE,
        scope=Scope.GRAPH,
        codes=(_ELSEWHERE,),
    ),
    Operation(
        "DELETE",
        _MEMBERS,
        delete_member,
        "Remove a user from a room",
        _REMOVED,
        access=Access.SERVICE,
        scope=Scope.GRAPH,
        codes=(_ELSEWHERE,),
    ),
    Operation(
        "GET",
        _MEMBERS,
        read_member,
        "Check whether a user is a member of a room",
        {200: ResponseDoc("The user is a member. Otherwise 404.", Member)},
        access=Access.SERVICE,
        scope=Scope.GRAPH,
        codes=("not_found", _ELSEWHERE),
    ),
    Operation(
        "POST",
        "/api/v1/relations",
        import_rows,
        "Add many relations",
        {200: ResponseDoc("All of them exist now.", Imported)},
        about=f"One JSON object per line, at most {MOST}. If a line is wrong, the error names it, and nothing is added.",
        access=Access.SERVICE,
        scope=Scope.GRAPH,
        body=BodyDoc(RelationLine, media=Media.NDJSON),
        codes=("invalid_relation", "invalid_user_id", "invalid_id", "invalid_instant", "too_many_rows", _ELSEWHERE),
    ),
    Operation(
        "POST",
        "/api/v1/relations/changed",
        relations_changed,
        "Report relations that changed in the application",
        {204: ResponseDoc("This node reads them again at once, other nodes within two seconds.")},
        about="For an application that herenow asks for relations (setting `relations`). Reports pairs of users, whole "
        f"users, members of rooms, and whole rooms: at most {MOST} in all, at most {MOST_WHOLE} of them whole users or "
        "rooms. Repeating a report is harmless.",
        access=Access.SERVICE,
        scope=Scope.GRAPH,
        body=BodyDoc(ChangedBody),
        codes=("invalid_relation", "invalid_user_id", "invalid_id", "too_many_rows"),
    ),
)
