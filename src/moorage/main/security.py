"""Settings of keys and logins: two tables of the configuration."""

from typing import Annotated, Literal

import msgspec

from moorage.model.errors import Invalid


class SecurityCompliance(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Limits of logins at the embedded identity service; settings have Keystone's names if Keystone has them."""

    lockout_failure_attempts: int = 0
    """Number of wrong passwords in a row that locks an account; 0: accounts are never locked (Keystone's default)."""
    lockout_duration: float = 1800.0
    """Seconds for which the account is locked."""
    login_failures_per_minute: int = 60
    """Failed logins per minute from one address; further ones must wait. 0: no limit."""
    password_hash_rounds: Annotated[int, msgspec.Meta(ge=4, le=31)] = 12
    """Cost of bcrypt: each step doubles the work. A hash with a lower cost is replaced when its owner logs in."""


class Secrets(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The region's keys, which all of its processes share (`moorage secrets`). They encrypt users' data for guests."""

    key_file: str = ""
    """A key in each line, the first encrypts; empty: `secrets/region-key`, made at the first start."""
    keys: tuple[str, ...] = ()
    """Instead of a file: `[{ env = "MOORAGE_REGION_KEY" }]`."""
    user_data: Literal["encrypted", "clear"] = "encrypted"
    """`clear`: for a downgrade to a release that cannot decrypt it."""


def check_security(keys: Secrets, logins: SecurityCompliance) -> None:
    """Check `[security_compliance]` and `[secrets]`. Raises Invalid for values that make no sense."""
    if min(logins.lockout_failure_attempts, logins.login_failures_per_minute) < 0 or logins.lockout_duration <= 0:
        raise Invalid("[security_compliance] has numbers of attempts, where 0 is no limit, and a positive duration")
    if keys.keys and keys.key_file:
        raise Invalid("[secrets] key_file and keys: say one of them")
