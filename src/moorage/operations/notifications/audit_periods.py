"""Audit periods: the current one and the last completed one; in UTC, as Nova's `instance_usage_audit_period`."""

import datetime
from typing import Literal, TypeAlias

AuditUnit: TypeAlias = Literal["hour", "day", "month", "year"]


def moment(at_us: int) -> datetime.datetime:
    return datetime.datetime.fromtimestamp(at_us // 1_000_000, datetime.UTC).replace(microsecond=at_us % 1_000_000)


def began(at: datetime.datetime, unit: AuditUnit) -> datetime.datetime:
    """When the period of this moment began."""
    hour = at.replace(minute=0, second=0, microsecond=0)
    match unit:
        case "hour":
            return hour
        case "day":
            return hour.replace(hour=0)
        case "month":
            return hour.replace(hour=0, day=1)
        case "year":
            return hour.replace(hour=0, day=1, month=1)


def last_completed(at_us: int, unit: AuditUnit) -> tuple[int, int]:
    """(from, to) of the last completed period, in microseconds."""
    ended = began(moment(at_us), unit)
    before = began(ended - datetime.timedelta(microseconds=1), unit)
    return _micros(before), _micros(ended)


def running(at_us: int, unit: AuditUnit) -> tuple[int, int]:
    """(from, now) of the current period, in microseconds."""
    return _micros(began(moment(at_us), unit)), at_us


def _micros(at: datetime.datetime) -> int:
    return int(at.timestamp()) * 1_000_000 + at.microsecond
