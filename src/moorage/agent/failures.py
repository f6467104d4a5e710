"""Failures in a line of the log."""

from moorage.model.errors import Problem


def reason_of(failure: BaseException) -> str:
    """For operators: the private part of a problem, where it has one."""
    return (failure.private or failure.public) if isinstance(failure, Problem) else repr(failure)
