"""TLS to PostgreSQL, configured as in all its clients: `?sslmode=verify-full&sslrootcert=/etc/ca.pem` in the URL.

The driver knows these names only in its own DSN, which SQLAlchemy does not pass on.
"""

import ssl
from typing import Any

import sqlalchemy as sa

from moorage.model.errors import Invalid

PARAMETERS = ("sslmode", "sslrootcert", "sslcert", "sslkey")
MODES = ("disable", "allow", "prefer", "require", "verify-ca", "verify-full")


def take_tls(url: sa.URL, name: str) -> tuple[sa.URL, dict[str, Any]]:
    """Return the URL without these parameters, and the driver's argument for them. Raises Invalid for values that are not allowed."""
    options = {each: str(url.query[each]) for each in PARAMETERS if each in url.query}
    url = url.difference_update_query(PARAMETERS)
    if not options:
        return url, {}
    mode = options.get("sslmode", "verify-full" if "sslrootcert" in options else "prefer")
    if mode not in MODES:
        raise Invalid(f"the database URL of {name}: sslmode is one of {', '.join(MODES)}")
    if mode in {"disable", "allow", "prefer"}:
        if len(options) > 1:
            raise Invalid(f"the database URL of {name} names certificates, which sslmode={mode} does not check")
        return url, {"ssl": mode}
    return url, {"ssl": _context(mode, options, name)}


def _context(mode: str, options: dict[str, str], name: str) -> ssl.SSLContext:
    """The TLS context. `require` checks no certificate, unless a CA is named; then it means `verify-ca`, as in libpq."""
    authority = options.get("sslrootcert")
    try:
        context = ssl.create_default_context(cafile=None if authority in {None, "system"} else authority)
        if "sslcert" in options:
            context.load_cert_chain(options["sslcert"], options.get("sslkey"))
    except (OSError, ssl.SSLError) as unreadable:
        raise Invalid(f"a certificate in the database URL of {name} cannot be read: {unreadable}") from unreadable
    context.check_hostname = mode == "verify-full"
    if mode == "require" and authority is None:
        context.verify_mode = ssl.CERT_NONE
    return context
