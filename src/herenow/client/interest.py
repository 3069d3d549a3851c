"""Whom do we watch? The difference between what is wanted and what the server was told, as frames.

Level-triggered: whoever wants something else says all of what they want, and `frames` answers with what is left to say. A
new connection has been told nothing, so resubscribing is the same difference. Pure: no timer, no socket. The rules are
rows in `spec/vectors/interest.json`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from msgspec import UNSET, Struct

from herenow.wire.frames import Frame, RoomCloseFrame, RoomOpenFrame, SubscribeFrame, UnsubscribeFrame
from herenow.wire.server_frames import AnyDeniedFrame, ServerFrame
from herenow.wire.shapes import ErrorFrame

OVERHEAD = 200
"""Bytes of a frame that are not ids, at the most."""


class Wants(Struct, frozen=True):
    users: tuple[str, ...] = ()
    rooms: tuple[str, ...] = ()
    contacts: bool = False


class Interest:
    def __init__(self) -> None:
        self._wants = Wants()
        self._number = 0
        self._denied: dict[str, str] = {}
        self._told: dict[str, None] = {}
        self._leaving: dict[str, None] = {}
        """No longer wanted, and the server does not know yet. Who is wanted again meanwhile needs a new answer."""
        self._told_rooms: dict[str, None] = {}
        self._told_contacts = False
        self._asked: dict[object, list[str] | None] = {}
        """Frames that have no answer yet, and whom they named; None: the contacts."""

    def want(self, wants: Wants) -> None:
        self._wants = wants
        wanted = set(wants.users)
        for user in [user for user in self._told if user not in wanted]:
            del self._told[user]
            self._denied.pop(user, None)
            self._leaving[user] = None

    def reset(self) -> None:
        """A new connection."""
        for told in (self._told, self._leaving, self._told_rooms, self._asked, self._denied):
            told.clear()
        self._told_contacts = False

    def again(self, users: Iterable[str]) -> None:
        """Those who were denied are asked for once more."""
        for user in list(users):
            if self._denied.pop(user, None) is not None:
                self._told.pop(user, None)

    def frames(self, size: int) -> list[Frame]:
        """What is left to say; `size` is the largest frame the server takes, in bytes."""
        return [*self._contacts(), *self._leave(size), *self._watch(size), *self._rooms()]

    def hear(self, frame: ServerFrame) -> bool:
        """Every frame of the server comes by here; True: a question failed and `frames` will ask it again."""
        if isinstance(frame, AnyDeniedFrame):
            self._denied |= {denied.target_user_id: denied.reason for denied in frame.all}
        frame_id = getattr(frame, "id", UNSET)
        if frame_id not in self._asked:
            return False
        users = self._asked.pop(frame_id)
        if not isinstance(frame, ErrorFrame):
            return False
        if users is None:
            self._told_contacts = False
        for user in users or ():
            self._told.pop(user, None)
        return True

    def _contacts(self) -> Iterator[Frame]:
        wanted = self._wants.contacts
        if wanted == self._told_contacts:
            return
        self._told_contacts = wanted
        if wanted:
            yield SubscribeFrame(contacts=True, id=self._ask(None))
        else:
            self._told.clear()  # leaving the contacts may take along people who are wanted by name
            yield UnsubscribeFrame(contacts=True)

    def _leave(self, size: int) -> Iterator[Frame]:
        if self._wants.contacts:
            return  # who is watched by name and is a contact too would be lost to the contacts
        wanted = set(self._wants.users)
        left = [user for user in self._leaving if user not in wanted]
        self._leaving.clear()
        for users in _chunks(left, size):
            yield UnsubscribeFrame(target_user_ids=list(users))
        if left:
            self.again([user for user, why in self._denied.items() if why == "too_many_subscriptions"])

    def _watch(self, size: int) -> Iterator[Frame]:
        for users in _chunks([user for user in self._wants.users if user not in self._told], size):
            self._told |= dict.fromkeys(users)
            yield SubscribeFrame(target_user_ids=list(users), id=self._ask(users))

    def _rooms(self) -> Iterator[Frame]:
        wanted = dict.fromkeys(self._wants.rooms)
        yield from (RoomCloseFrame(room=room) for room in self._told_rooms if room not in wanted)
        yield from (RoomOpenFrame(room=room) for room in wanted if room not in self._told_rooms)
        self._told_rooms = wanted

    def _ask(self, users: list[str] | None) -> str:
        self._number += 1
        frame_id = f"w{self._number}"
        self._asked[frame_id] = users
        return frame_id


def _chunks(ids: Iterable[str], size: int) -> list[list[str]]:
    """Lists that fit into a frame, whatever characters there are: three bytes for each of UTF-16's units, quotes, comma."""
    lists: list[list[str]] = []
    room = 0
    for user in ids:
        length = len(user.encode("utf-16-le")) // 2 * 3
        room -= length + 3
        if room < 0:
            lists.append([])
            room = size - OVERHEAD - length
        lists[-1].append(user)
    return lists
