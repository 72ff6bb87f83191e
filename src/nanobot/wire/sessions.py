"""All sessions of legacy HTTP clients: the living ones, and those that are parked in the store.

A session that nobody uses leaves memory once all of it is saved; the next request brings it back, here or in
another process of the home. While others share the home, what we hold is compared with the store at most
once a second, so that a session which was ended or changed elsewhere is so here too.
"""

from __future__ import annotations

import logging
import uuid
from collections import deque
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Final

import anyio

from nanobot.config.model import SessionSettings
from nanobot.errors import Busy, StoreError
from nanobot.wire.attendance import Attendance
from nanobot.wire.call import Audience
from nanobot.wire.event_stream import Clock
from nanobot.wire.home import NoStore, SessionRecord, SessionStore
from nanobot.wire.session import Session

log = logging.getLogger(__name__)

CONTINUATIONS: Final = "clients"
"""The attribute that keeps what `Attendance` needs."""
FRESH_S: Final = 1.0
"""How long what is known of the store may be out of date."""
SAVE_SPACING_S: Final = 1.0
LONGEST_SPACING_S: Final = 30.0
"""The pause between two rounds of saving, and the longest one while the store fails."""
TOUCH_S: Final = 3600.0
"""How long the time of use on record may be out of date: retention counts in days."""
HANDSHAKE_S: Final = 60.0
"""How long a session lives whose client has only shaken hands."""
EVICTABLE_S: Final = 10.0
"""How long a session must have rested to make room for another."""


class Sessions:
    """Looks after sessions from the handshake to their end. `run_saving` must be running."""

    def __init__(
        self,
        settings: SessionSettings,
        clock: Clock,
        store: SessionStore,
        attendance: Attendance | None,
        *,
        restored: Callable[[Session], None],
        parted: Callable[[Session], None],
    ) -> None:
        """`restored` is told of each session that came back from the store, `parted` of each after it has
        left memory, for whatever reason."""
        self.failed_saves = 0
        """How often sessions could not be saved; they wait for the next attempt."""
        self._settings = settings
        self._clock = clock
        self._store = store
        self._keeps = not isinstance(store, NoStore)
        self._attendance = attendance
        self._restored = restored
        self._parted = parted
        self._living: dict[str, Session] = {}
        self._unsaved: dict[str, Session] = {}
        self._used: dict[str, Session] = {}
        """For whom something may have been opened that is to be kept."""
        self._has_unsaved = anyio.Event()
        self._deleting: set[tuple[str, str]] = set()
        self._deleted: deque[str] = deque(maxlen=1000)
        """The last ones, for readers who began before."""
        self._saving = anyio.Lock()
        self._is_shared = False
        self._look_at = self._prune_at = self._evict_at = clock()

    def __len__(self) -> int:
        return len(self._living)

    @property
    def unsaved(self) -> int:
        """How many have news that is not on record yet."""
        return len(self._unsaved)

    def __iter__(self) -> Iterator[Session]:
        return iter(tuple(self._living.values()))

    def reached(self, audience: Audience) -> Iterator[Session]:
        """The living sessions among which those are that `audience` includes."""
        if audience.session is None:
            return iter(self)
        session = self._living.get(audience.session)
        return iter(()) if session is None else iter((session,))

    # Beginning

    async def make_room(self) -> None:
        """Raises `Busy` if there can be no further session now. Those that rest are parked for it."""
        if len(self._living) >= self._settings.max_live and self._clock() >= self._evict_at:
            self._evict_at = (
                self._clock() + FRESH_S
            )  # looking through all costs too much for each one refused
            await self._evict()
        self._check_room()

    def add(self, session: Session) -> None:
        """Raises `Busy` if the room that `make_room` made has been taken."""
        self._check_room()
        self._living[session.id] = session
        if self._attendance is not None:
            kept = session.peer.attributes.get(CONTINUATIONS)
            if isinstance(kept, Mapping):
                self._attendance.continue_with(session.account, session.id, kept)  # pyright: ignore[reportUnknownArgumentType]
            self._attendance.began(session.account, session.id)

    def use(self, session: Session) -> None:
        """A request of `session` begins."""
        if not session.is_confirmed:
            session.is_confirmed = True
            self.note(session)
        if session.id not in self._used and self._keeps and self._attendance is not None:
            self._used[session.id] = session
            self._has_unsaved.set()

    def note(self, session: Session) -> None:
        """Parts of `session` have changed: have them saved."""
        if session.is_confirmed:
            self._unsaved[session.id] = session
            self._has_unsaved.set()

    # Finding

    def find(self, id: str, account: str) -> Session | None:
        """The living session, if it can be used as it is. If not, `fetch` knows more."""
        session = self._living.get(id)
        if session is None or session.account != account:
            return None
        now = self._clock()
        if now >= self._look_at:
            self._look_at = now + FRESH_S
            self._is_shared = self._store.is_shared()
        if self._is_shared and now - session.seen_at > FRESH_S:
            return None
        return None if self._is_over(session, now) else session

    async def fetch(self, id: str, account: str) -> Session | None:
        """The session, from the store if need be. Raises `Busy` if there is no room, `StoreError`."""
        living = self._mine(id, account)
        if living is not None and self._is_over(living, self._clock()):
            await self._park([living])
            living = self._mine(id, account)
        if not _is_uuid(id):
            return None
        revision = 0 if living is None else living.revision
        try:
            record = await self._read(id, account)
        except StoreError as failure:
            if living is None:
                raise
            log.warning("a session could not be compared with the store", extra={"reason": str(failure)})
            return living
        living = self._mine(id, account)
        if record is None:
            if living is not None and revision:
                self._leave(living, "the session was deleted")
            return living if not revision else None
        try:
            if living is None:
                await self.make_room()
                if (living := self._mine(id, account)) is None:
                    living = Session.restored(record, self._clock)
                    self.add(living)
                    self._restored(living)
            elif record.revision > living.revision:
                living.refresh(record)
        except ValueError:
            log.exception("a session on record cannot be read", extra={"session": id[:8]})
            return None
        living.seen_at = self._clock()
        return living

    # Ending

    async def delete(self, id: str, account: str) -> bool:
        """End the session everywhere; whether there was one. Raises `StoreError`; then it goes on."""
        living = self._mine(id, account)
        if living is None and not _is_uuid(id):
            return False
        self._deleting.add((id, account))
        try:
            was_kept = await self._store.delete(id, account)
            if living is not None:
                self._leave(living, "the session was deleted")
            if was_kept or living is not None:
                self._deleted.append(id)
        finally:
            self._deleting.discard((id, account))
        return was_kept or living is not None

    async def sweep(self) -> None:
        """Park what has been idle for too long, and end what was deleted in another process."""
        now = self._clock()
        idle: list[Session] = []
        for session in self:
            if self._is_over(session, now):
                idle.append(session)
                continue
            session.tidy(now)
            if session.is_busy:  # a client that only listens uses it as well
                session.used_at = now
            if session.peer.changed or self._is_out_of_date(session):
                self.note(session)
        await self._park(idle)
        try:
            await self._end_deleted()
            if now >= self._prune_at:
                self._prune_at = now + TOUCH_S
                await self._store.prune()
        except StoreError as failure:
            log.warning("the stored sessions could not be looked through", extra={"reason": str(failure)})

    # Saving

    async def run_saving(self) -> None:
        """Save what changes, all of it together and not more often than once a second."""
        pause = SAVE_SPACING_S
        while True:
            await self._has_unsaved.wait()
            pause = SAVE_SPACING_S if await self.save() else min(pause * 2, LONGEST_SPACING_S)
            await anyio.sleep(pause)

    async def save(self) -> bool:
        """Save what has changed; False if the store failed. What could not be saved stays to be saved."""
        async with self._saving:  # one after the other, so that nobody takes for saved what is on its way
            self._has_unsaved = anyio.Event()
            self._look_at_connections()
            unsaved, self._unsaved = self._unsaved, {}
            return await self._write(unsaved.values())

    async def close(self) -> None:
        """Save everything, and part from all sessions: they may go on in another process."""
        for session in self:
            self._note_continuations(session)
        await self.save()
        if self._attendance is not None:
            for session in self:
                self._attendance.ended(
                    session.account, session.id, is_over=not (self._keeps and session.revision)
                )

    def _look_at_connections(self) -> None:
        """Note what was opened for sessions in use; they are looked at again for as long as they are busy."""
        used, self._used = self._used, {}
        for id, session in used.items():
            if self._living.get(id) is session:
                self._note_continuations(session)
                if session.requests:
                    self.use(session)

    def _note_continuations(self, session: Session) -> None:
        if self._attendance is None or not (self._keeps and session.is_confirmed):
            return
        found = self._attendance.continuations(session.account, session.id)
        kept = session.peer.attributes.get(CONTINUATIONS, {})
        if found and found != kept:  # one that was not opened since the session came back is still good
            session.peer.put(CONTINUATIONS, {**kept, **found})
            self.note(session)

    async def _write(self, sessions: Collection[Session]) -> bool:
        """Save those that have news. Under the lock `_saving`."""
        batch = [one for one in sessions if self._is_to_save(one)]
        if not batch:
            return True
        changed = [one.peer.changed for one in batch]
        records = [SessionRecord(one.id, one.account, one.revision, one.peer.record()) for one in batch]
        for session in batch:
            session.peer.changed = frozenset()
        verdicts: list[bool] = []
        try:
            verdicts = await self._store.save(records)
        except StoreError as failure:
            self.failed_saves += 1
            log.warning(
                "sessions could not be saved; it will be tried again",
                extra={"sessions": len(batch), "reason": str(failure)},
            )
        finally:
            now = self._clock()
            for place, session in enumerate(batch):
                if verdicts and verdicts[place]:
                    session.revision, session.saved_at = records[place].revision + 1, now
                else:
                    session.peer.changed |= changed[place]
                    self.note(session)
        for session, is_saved in zip(batch, verdicts, strict=False):
            if not is_saved:
                await self._catch_up(session)
        return bool(verdicts)

    async def _catch_up(self, session: Session) -> None:
        """Another process was faster: take in what it saved, so that what changed here can be added to it."""
        try:
            record = await self._read(session.id, session.account)
        except StoreError as failure:
            log.warning("a session could not be compared with the store", extra={"reason": str(failure)})
            return
        if record is None:
            self._leave(session, "the session was deleted")
        else:
            session.refresh(record)

    # Inside

    def _mine(self, id: str, account: str) -> Session | None:
        session = self._living.get(id)
        return session if session is not None and session.account == account else None

    async def _read(self, id: str, account: str) -> SessionRecord | None:
        row = await self._store.find(id, account)
        if row is None or (id, account) in self._deleting or id in self._deleted:
            return None
        return SessionRecord(*row)

    async def _end_deleted(self) -> None:
        if not self._store.is_shared():
            return
        kept = [session for session in self if session.revision]
        gone = await self._store.missing([session.id for session in kept])
        for session in kept:
            if session.id in gone:
                self._leave(session, "the session was deleted")

    async def _evict(self) -> None:
        """Let a hundredth of the sessions go, those first whose clients may never come back."""
        now = self._clock()
        resting = [one for one in self if now - one.used_at >= EVICTABLE_S and not one.is_busy]
        resting.sort(key=lambda one: (one.is_confirmed, one.used_at))
        await self._park(resting[: max(1, self._settings.max_live // 100)], rest_s=EVICTABLE_S)

    async def _park(self, sessions: Sequence[Session], *, rest_s: float | None = None) -> None:
        """Let sessions leave memory that have rested (for the idle timeout, unless told otherwise).

        One that could not be saved stays.
        """
        async with self._saving:
            for session in sessions:
                self._note_continuations(session)
            await self._write(sessions)
        now = self._clock()
        for session in sessions:
            rests = self._is_over(session, now) if rest_s is None else now - session.used_at >= rest_s
            if rests and not session.is_busy and not (session.is_confirmed and session.peer.changed):
                self._leave(session, "session expired", is_over=not session.revision)

    def _is_to_save(self, session: Session) -> bool:
        has_news = not session.revision or session.peer.changed or self._is_out_of_date(session)
        is_here = (
            self._living.get(session.id) is session and (session.id, session.account) not in self._deleting
        )
        return bool(has_news) and session.is_confirmed and is_here

    def _is_out_of_date(self, session: Session) -> bool:
        """Whether the time of use on record is."""
        return session.used_at - session.saved_at > TOUCH_S

    def _leave(self, session: Session, reason: str, *, is_over: bool = True) -> None:
        """`is_over`: it does not come back."""
        if self._living.get(session.id) is session:
            del self._living[session.id]
            self._unsaved.pop(session.id, None)
            session.end(reason)
            if self._attendance is not None:
                self._attendance.ended(session.account, session.id, is_over=is_over or not self._keeps)
            self._parted(session)

    def _check_room(self) -> None:
        if len(self._living) >= self._settings.max_live:
            raise Busy(f"All {self._settings.max_live} sessions are in use; try again in a few seconds.")

    def _is_over(self, session: Session, now: float) -> bool:
        limit = self._settings.idle_timeout_s
        if not session.is_confirmed:
            limit = min(limit, HANDSHAKE_S)
        return now - session.used_at > limit and not session.is_busy


def _is_uuid(id: str) -> bool:
    """Whether `id` can be one of ours: nothing else is looked up."""
    try:
        return str(uuid.UUID(id)) == id
    except ValueError:
        return False
