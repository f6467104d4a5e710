"""Settings of keys and logins: two tables of the configuration."""

from typing import Annotated, Literal

import msgspec

from moorage.model.errors import Invalid


class SecurityCompliance(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Logins at the embedded identity service; Keystone's names where it has them."""

    lockout_failure_attempts: int = 0
    """Wrong passwords in a row that lock an account; 0: none do, as in Keystone."""
    lockout_duration: float = 1800.0
    """Seconds for which it is locked."""
    login_failures_per_minute: int = 60
    """From one address; whoever has more waits. 0: any number."""
    password_hash_rounds: Annotated[int, msgspec.Meta(ge=4, le=31)] = 12
    """Cost of bcrypt: one more is twice the work. Hashes of less are made anew at their owner's login."""


class Secrets(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What users tell their guests is encrypted with the region's keys, which all of its processes share (`moorage secrets`)."""

    key_file: str = ""
    """A key in each line, the first encrypts; empty: `secrets/region-key`, made at the first start."""
    keys: tuple[str, ...] = ()
    """Instead of a file: `[{ env = "MOORAGE_REGION_KEY" }]`."""
    user_data: Literal["encrypted", "clear"] = "encrypted"
    """`clear`: for whoever goes back to a release that cannot decrypt it."""


def check_security(keys: Secrets, logins: SecurityCompliance) -> None:
    """Raises Invalid for what cannot be meant."""
    if min(logins.lockout_failure_attempts, logins.login_failures_per_minute) < 0 or logins.lockout_duration <= 0:
        raise Invalid("[security_compliance] has numbers of attempts, where 0 is no limit, and a positive duration")
    if keys.keys and keys.key_file:
        raise Invalid("[secrets] key_file and keys: say one of them")
