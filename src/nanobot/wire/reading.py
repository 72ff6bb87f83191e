"""Which stream a GET reads: the one for what belongs to no request, or one taken up where it broke."""

from __future__ import annotations

from nanobot.sse import whole_number
from nanobot.wire.event_stream import REPLAY_LOST, EventStream
from nanobot.wire.outbox import Outbox
from nanobot.wire.session import STANDALONE, Session


def opened_by_get(session: Session, last_event: bytes | None) -> tuple[EventStream | None, Outbox]:
    """The stream that a GET asks for: the standalone one, or one to be resumed after `last_event`."""
    stream = session.open_standalone()
    if last_event is None:
        outbox = stream.attach(prime=session.primes)
        for question in session.questions.pending():  # whoever read them before has gone
            if question.sent_on is not None and question.sent_on.reader in (None, outbox):
                question.sent_on = stream
                stream.send(question.message)
        return stream, outbox
    number, event, life = _event_id(last_event)
    if number is not None and event is not None:
        if session.is_of_this_life(life):
            return session.resume(number, event)
        if number != STANDALONE:  # its request has ended with the process that answered it
            outbox = Outbox()
            outbox.put(REPLAY_LOST, must=True)
            outbox.close()
            return None, outbox
    outbox = stream.attach(prime=session.primes)
    outbox.put(REPLAY_LOST, must=True)
    return stream, outbox


def _event_id(text: bytes) -> tuple[int | None, int | None, bytes]:
    stream, _, rest = text.partition(b"-")
    number, _, life = rest.partition(b"-")
    return whole_number(stream), whole_number(number), life
