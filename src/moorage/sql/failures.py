"""Turns a driver's error into a `Problem` whose sentence names the cause; None: the statement itself is wrong.

A database that is full, read-only, hung, damaged, stopped or unreachable is `Unavailable`: the caller waits and tries again.
It is `UnknownOutcome` if a COMMIT was sent and no answer came.
"""

import sqlite3
import ssl

from sqlalchemy.engine import ExceptionContext
from sqlalchemy.exc import DBAPIError, InterfaceError
from sqlalchemy.exc import TimeoutError as PoolTimeout

from moorage.model.errors import Invalid, Problem, Unavailable, UnknownOutcome

RETRY_AFTER_S = 5.0
"""Pause between tries while a person must act (disk space, a standby, a damaged file)."""
STATEMENT_CUT = "57014"
NO_SUCH_CHARACTER = "22021"
"""SQLSTATE for the character NUL in a text, which SQLite stores and PostgreSQL does not."""

FULL = "is out of disk space: free some on its machine; what was asked waits until then"
READ_ONLY = "is read-only (a standby, or set so): nothing can be written until that is undone"
DAMAGED = "is damaged: restore it from a backup"
IO_FAILED = "cannot read or write its disk"
GONE = "does not exist on its server: check its URL, or restore it from a backup"
SILENT = "does not answer"

SQLITE_SAYS = {
    sqlite3.SQLITE_FULL: FULL,
    sqlite3.SQLITE_READONLY: READ_ONLY,
    sqlite3.SQLITE_IOERR: IO_FAILED,
    sqlite3.SQLITE_CANTOPEN: "cannot be opened: look whether its file, its directory and their rights are there",
    sqlite3.SQLITE_PERM: "may not be opened by this user: check the rights of its file",
    sqlite3.SQLITE_CORRUPT: DAMAGED,
    sqlite3.SQLITE_NOTADB: "is no database file: check its URL, or restore it from a backup",
    sqlite3.SQLITE_BUSY: "is locked by another process; try again later",
    sqlite3.SQLITE_LOCKED: "is locked; try again later",
    sqlite3.SQLITE_PROTOCOL: "is locked by another process; try again later",
    sqlite3.SQLITE_NOMEM: "has no memory left",
}
"""By SQLite's primary result code."""
POSTGRESQL_SAYS = {
    "53000": "has no resources left",
    "53100": FULL,
    "53200": "has no memory left",
    "53300": "has no connection left: raise max_connections there, or lower [database] pool_size here",
    "53400": "has reached a limit of its configuration",
    "25006": READ_ONLY,
    "58000": IO_FAILED,
    "58030": IO_FAILED,
    "58P01": IO_FAILED,
    "58P02": IO_FAILED,
    "58P03": IO_FAILED,
    "XX001": DAMAGED,
    "XX002": DAMAGED,
    "57000": "was stopped by its operator",
    "57P01": "is shutting down",
    "57P02": "is starting again after a crash",
    "57P03": "is starting",
    "57P04": GONE,
    "57P05": "ended an idle session",
    "25P03": "ended a transaction that stood still",
    "25P04": "ended a transaction that took too long for its transaction_timeout",
    "40003": SILENT,
    "42501": "refuses our user what it needs: check the owner and the rights of its tables",
    "3D000": GONE,
    "28000": "refuses our user: check its URL",
    "28P01": "refuses our password: check its URL",
}
"""By SQLSTATE: classes 08, 28, 53, 57 and 58 of PostgreSQL's error codes, and codes of other classes that the statement did not cause."""
LASTING = {FULL, READ_ONLY, DAMAGED, GONE}
TAKEN_BACK = {"53100", "53200", "25006", "42501", STATEMENT_CUT}
"""As an answer to a COMMIT, these codes mean that it was rolled back; after the end of a session the outcome is unknown."""


def of_sqlite(name: str, failure: BaseException, *, committing: bool = False) -> Problem | None:
    """Return the Problem for an error of SQLite. `committing`: a COMMIT was being written; after a disk error its outcome is unknown."""
    cause = failure.orig if isinstance(failure, DBAPIError) else failure
    if not isinstance(cause, sqlite3.Error):
        return None
    code = getattr(cause, "sqlite_errorcode", None)
    text = None if code is None else SQLITE_SAYS.get(code & 0xFF)
    if text is None or code is None:
        return None
    unknown = committing and code & 0xFF == sqlite3.SQLITE_IOERR
    return _unavailable(UnknownOutcome if unknown else Unavailable, name, text, cause)


def of_postgresql(
    name: str, failure: BaseException, *, committing: bool = False, statement_s: float = 0
) -> Problem | None:
    """Return the Problem for an error of PostgreSQL; it is Invalid for a text that PostgreSQL cannot store."""
    cause = failure.orig if isinstance(failure, DBAPIError) else failure
    state = sqlstate_of(failure)
    if state == NO_SUCH_CHARACTER:
        return Invalid("A text may not contain the character NUL.", private=repr(failure))
    text = POSTGRESQL_SAYS.get(state)
    if state == STATEMENT_CUT:
        text = f"took longer than {statement_s:.0f} s for one statement; try again later"
    if text is None and isinstance(failure, PoolTimeout):
        text = "is busy: every connection of this process is in use; try again later"
    if text is None and isinstance(cause, ssl.SSLCertVerificationError):
        text = f"shows a certificate that is not trusted ({cause.verify_message}): check sslrootcert in its URL"
    if text is None and is_timeout(failure):
        text = f"has not answered for {statement_s:.0f} s: its server hangs, or the way to it is cut"
    if text is None and not _is_lost(failure, state):
        return None
    unknown = committing and state not in TAKEN_BACK
    return _unavailable(UnknownOutcome if unknown else Unavailable, name, text or SILENT, cause or failure)


DETAIL = "\nDETAIL:"


def forget_values(context: ExceptionContext) -> None:
    """Remove values from PostgreSQL's error: it repeats the refused row, and users' data must not appear in the log."""
    for each in (context.original_exception, context.original_exception.__cause__, context.sqlalchemy_exception):
        if each is not None:
            each.args = tuple(
                argument.partition(DETAIL)[0] if isinstance(argument, str) else argument for argument in each.args
            )
            if getattr(each, "detail", None):
                each.__dict__["detail"] = None


def is_timeout(failure: BaseException) -> bool:
    """Tell whether the server did not answer for too long; then a rollback would not be answered either."""
    return isinstance(failure.orig if isinstance(failure, DBAPIError) else failure, TimeoutError)


def sqlstate_of(failure: BaseException) -> str:
    """Return PostgreSQL's SQLSTATE; empty if there is none."""
    cause = failure.orig if isinstance(failure, DBAPIError) else failure
    return str(getattr(cause, "sqlstate", None) or getattr(cause, "pgcode", None) or "")


def _is_lost(failure: BaseException, state: str) -> bool:
    """Whether the server went away or could not be reached: a later try may help."""
    if isinstance(failure, OSError | PoolTimeout) or state[:2] in {"08", "28", "53", "58"} or state[:3] == "57P":
        return True
    return isinstance(failure, DBAPIError) and (failure.connection_invalidated or isinstance(failure, InterfaceError))


def _unavailable(kind: type[Unavailable], name: str, text: str, cause: BaseException) -> Unavailable:
    problem = kind(f"the {name} database {text}", private=repr(cause))
    if text in LASTING:
        problem.retry_after_s = RETRY_AFTER_S
    return problem
