"""Subscriptions: computes the frames that bring the server from the subscriptions sent so far to the wanted ones.

Level-triggered: `want` takes the complete wanted set, `frames` returns the difference. On a new connection nothing has
been sent, so resubscribing is the same computation. Pure: no timer, no socket. Tested by `spec/vectors/subscriptions.json`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from msgspec import UNSET, Struct

from herenow.wire.frames import Frame, RoomCloseFrame, RoomOpenFrame, SubscribeFrame, UnsubscribeFrame
from herenow.wire.server_frames import AnyDeniedFrame, ServerFrame
from herenow.wire.shapes import ErrorFrame

OVERHEAD = 200
"""Upper bound of the bytes of a frame other than its ids."""


class Wants(Struct, frozen=True):
    users: tuple[str, ...] = ()
    rooms: tuple[str, ...] = ()
    contacts: bool = False


class Interest:
    def __init__(self) -> None:
        self._wants = Wants()
        self._number = 0
        self._denied: dict[str, str] = {}
        self._sent: dict[str, None] = {}
        """Users in the subscribe frames of this connection."""
        self._leaving: dict[str, None] = {}
        """No longer wanted, unsubscribe not sent yet. A user wanted again meanwhile is subscribed anew: the caller dropped
        the known status and needs the server to send it again."""
        self._sent_rooms: dict[str, None] = {}
        self._sent_contacts = False
        self._unanswered: dict[object, list[str] | None] = {}
        """Subscribe frames without a response: frame id → users in it, None for the contacts."""

    def want(self, wants: Wants) -> None:
        self._wants = wants
        wanted = set(wants.users)
        for user in [user for user in self._sent if user not in wanted]:
            del self._sent[user]
            self._denied.pop(user, None)
            self._leaving[user] = None

    def reset(self) -> None:
        """Forget all subscriptions that were sent. Call this for each new connection: nothing was sent on it yet."""
        for known in (self._sent, self._leaving, self._sent_rooms, self._unanswered, self._denied):
            known.clear()
        self._sent_contacts = False

    def again(self, users: Iterable[str]) -> None:
        """Forget that the server denied these users: the next `frames` subscribes again to those still wanted."""
        for user in list(users):
            if self._denied.pop(user, None) is not None:
                self._sent.pop(user, None)

    def frames(self, size: int, bulk: int) -> list[Frame]:
        """Return the frames that bring the server's subscriptions to the wanted ones; they count as sent. `size` is the
        largest frame that the server accepts, in bytes; `bulk` is how many users one frame may list."""
        return [*self._contacts(), *self._unsubscribe(size, bulk), *self._subscribe(size, bulk), *self._rooms()]

    def hear(self, frame: ServerFrame) -> bool:
        """Process any frame of the server. True if it refused a subscribe frame; the next `frames` repeats that one."""
        if isinstance(frame, AnyDeniedFrame):
            self._denied |= {denied.target_user_id: denied.reason for denied in frame.all}
        frame_id = getattr(frame, "id", UNSET)
        if frame_id not in self._unanswered:
            return False
        users = self._unanswered.pop(frame_id)
        if not isinstance(frame, ErrorFrame):
            return False
        if users is None:
            self._sent_contacts = False
        for user in users or ():
            self._sent.pop(user, None)
        return True

    def _contacts(self) -> Iterator[Frame]:
        wanted = self._wants.contacts
        if wanted == self._sent_contacts:
            return
        self._sent_contacts = wanted
        if wanted:
            yield SubscribeFrame(contacts=True, id=self._new_frame_id(None))
        else:
            self._sent.clear()  # unsubscribing from contacts may also end subscriptions by user id: send those again
            yield UnsubscribeFrame(contacts=True)

    def _unsubscribe(self, size: int, bulk: int) -> Iterator[Frame]:
        if self._wants.contacts:
            return  # unsubscribing a user who is also a contact would remove the user from the contacts subscription
        wanted = set(self._wants.users)
        left = [user for user in self._leaving if user not in wanted]
        self._leaving.clear()
        for users in _chunks(left, size, bulk):
            yield UnsubscribeFrame(target_user_ids=list(users))
        if left:
            self.again([user for user, why in self._denied.items() if why == "too_many_subscriptions"])

    def _subscribe(self, size: int, bulk: int) -> Iterator[Frame]:
        for users in _chunks([user for user in self._wants.users if user not in self._sent], size, bulk):
            self._sent |= dict.fromkeys(users)
            yield SubscribeFrame(target_user_ids=list(users), id=self._new_frame_id(users))

    def _rooms(self) -> Iterator[Frame]:
        wanted = dict.fromkeys(self._wants.rooms)
        yield from (RoomCloseFrame(room=room) for room in self._sent_rooms if room not in wanted)
        yield from (RoomOpenFrame(room=room) for room in wanted if room not in self._sent_rooms)
        self._sent_rooms = wanted

    def _new_frame_id(self, users: list[str] | None) -> str:
        self._number += 1
        frame_id = f"w{self._number}"
        self._unanswered[frame_id] = users
        return frame_id


def _chunks(ids: Iterable[str], size: int, bulk: int) -> list[list[str]]:
    """Split ids into lists of at most `bulk`, of which each fits a frame of `size` bytes, if an id has at most 3 bytes
    per UTF-16 unit."""
    lists: list[list[str]] = []
    room = 0
    for user in ids:
        length = len(user.encode("utf-16-le")) // 2 * 3
        room -= length + 3
        if room < 0 or len(lists[-1]) >= bulk:
            lists.append([])
            room = size - OVERHEAD - length
        lists[-1].append(user)
    return lists
