"""Times as Nova writes them; we keep microseconds since 1970, UTC."""

from datetime import UTC, datetime

from moorage.api.context import ApiClock


def now_us(clock: ApiClock) -> int:
    return int(clock.now() * 1_000_000)


def seconds(at_us: int | None) -> str | None:
    """`2026-01-02T03:04:05Z`."""
    return None if at_us is None else datetime.fromtimestamp(at_us / 1e6, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def micros(at_us: int | None) -> str | None:
    """`2026-01-02T03:04:05.678901`."""
    return None if at_us is None else datetime.fromtimestamp(at_us / 1e6, UTC).strftime("%Y-%m-%dT%H:%M:%S.%f")
