"""Sessions of logged-in users. Tokens are only in the memory of this process: a cookie names a session, and a restart ends all sessions."""

import secrets
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

EXPIRY_MARGIN_S = 30.0
"""How long before its token a session ends, so that no call starts with an expired token."""


@dataclass(frozen=True)
class Identity:
    """The facts of one token, from Keystone."""

    token: str = field(repr=False)
    expires_at: float
    """Seconds since the epoch."""
    user: str
    user_id: str
    project: str
    project_id: str
    roles: frozenset[str]
    endpoints: Mapping[str, str]
    """Type of service → URL."""
    restricted: str = ""
    """The application credential, which may allow less than its roles; empty: there is none."""

    @property
    def scope(self) -> tuple[str, ...]:
        """A key: sessions with the same scope see the same in the API, so they share polls."""
        return self.project_id, self.restricted, *sorted(self.roles)

    @property
    def is_admin(self) -> bool:
        """Whether pages for administrators are offered; the API decides what they show."""
        return "admin" in self.roles


class Session:
    """One login of one browser."""

    def __init__(self, identity: Identity, now: float, login: Identity | None = None) -> None:
        self.id = secrets.token_urlsafe(32)
        self.csrf = secrets.token_urlsafe(32)
        self.identity = identity
        self.login = login or identity
        """The login's own token, from which the one in use may come: newer Keystones end with it all that came from it."""
        self.seen_at = now
        self.streams = 0
        """Pages that it follows live, from the request on."""
        self.proved: dict[str, float] = {}
        """Topics that the API has shown to this very token, and when it last did, by the feeds' clock."""
        self.over = False


class Sessions:
    """All sessions, the least recently used first."""

    def __init__(
        self, kept_max: int, idle_s: float, clock: Callable[[], float] = time.time, *, of_a_user_max: int = 20
    ) -> None:
        self._kept_max, self._of_a_user_max = kept_max, of_a_user_max
        self._idle_s = idle_s
        self._clock = clock
        self._sessions: OrderedDict[str, Session] = OrderedDict()

    def __len__(self) -> int:
        return len(self._sessions)

    def open(self, identity: Identity, login: Identity | None = None) -> Session | None:
        """Open a session, for another project of the same `login` where that is named; None: there are too many.  A user who
        has as many as a user may have loses the one that was used least recently, and so takes nobody else's place.
        """
        self._sweep()
        own = [each for each in self._sessions.values() if each.identity.user_id == identity.user_id]
        for session in own[: max(len(own) - self._of_a_user_max + 1, 0)]:
            self.end(session)
        if len(self._sessions) >= self._kept_max:
            return None
        session = Session(identity, self._clock(), login)
        self._sessions[session.id] = session
        return session

    def find(self, id: str) -> Session | None:
        """Return the session of this cookie, if it is not over."""
        session = self._sessions.get(id)
        if session is None:
            return None
        if not self.holds(session):
            self.end(session)
            return None
        session.seen_at = self._clock()
        self._sessions.move_to_end(id)
        return session

    def holds(self, session: Session) -> bool:
        """Tell whether a session is open: not ended, with a valid token, and not idle for too long. A followed page is not idle."""
        now = self._clock()
        idle = now - session.seen_at > self._idle_s and not session.streams
        return not session.over and now < session.identity.expires_at - EXPIRY_MARGIN_S and not idle

    def end(self, session: Session) -> None:
        session.over = True
        self._sessions.pop(session.id, None)

    def _sweep(self) -> None:
        for session in [each for each in self._sessions.values() if not self.holds(each)]:
            self.end(session)
