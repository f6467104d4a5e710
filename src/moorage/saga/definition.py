"""A saga: a name with its version, the type of its input, and the steps in order.  Mistakes in it raise at import."""

from collections.abc import Callable, Sequence
from typing import Any, Generic, TypeAlias, TypeVar

from msgspec import Struct

from moorage.model.errors import Internal, Problem
from moorage.model.tracing import traceparent
from moorage.saga.journal import Intent, Line
from moorage.saga.step import RetryGroup, Run, Step

InputT = TypeVar("InputT", bound=Struct)
ContextT = TypeVar("ContextT")

Turned: TypeAlias = Callable[[Any, Run[InputT, ContextT], Problem, str], object]
"""`(tx, run, problem, reason)`: called in the commit that begins the unwinding; reason is "failed" or "cancel"."""
Finished: TypeAlias = Callable[[Any, Run[InputT, ContextT], str], object]
"""`(tx, run, status)`: called in the commit that ends the saga; status is "done" or "unwound"."""


class Saga(Generic[InputT, ContextT]):
    """`Saga("boot/1", Boot, make_ports, on_some_host(claim_host, …), announce)`; `steps` is the flat list."""

    def __init__(
        self,
        name: str,
        input_type: type[InputT],
        *parts: Step[InputT, ContextT, Any] | RetryGroup[InputT, ContextT],
        turned: Turned[InputT, ContextT] | None = None,
        ended: Finished[InputT, ContextT] | None = None,
        forward_only: bool = False,
    ) -> None:
        """`forward_only`: it is never unwound; when the patience of a step is over, it is stuck.  Raises Internal for a wrong definition."""
        self.name = name
        self.input_type = input_type
        self.parts = parts
        self.turned = turned
        self.ended = ended
        self.forward_only = forward_only
        self.group: RetryGroup[InputT, ContextT] | None = None
        self.group_at = range(0)
        steps: list[Step[InputT, ContextT, Any]] = []
        for part in parts:
            if isinstance(part, RetryGroup):
                if self.group is not None:
                    raise Internal(f"{name}: a saga has one group of steps for a host")
                self.group, self.group_at = part, range(len(steps), len(steps) + len(part.steps))
                steps += part.steps
            else:
                steps.append(part)
        self.steps = tuple(steps)
        self.at = {each.name: at for at, each in enumerate(steps)}
        self._check()

    def _check(self) -> None:
        if "/" not in self.name or not self.steps:
            raise Internal(f"{self.name}: a saga has steps, and a name that ends in its version, such as boot/1")
        if len(self.at) != len(self.steps):
            raise Internal(f"{self.name}: two steps have one name")
        for at, each in enumerate(self.steps):
            if each.undo_with is None and not each.no_undo:
                raise Internal(f"{self.name}: {each.name} has neither an undo nor a reason why it needs none")
            if missing := [need for need in each.needs if self.at.get(need, at) >= at]:
                raise Internal(f"{self.name}: {each.name} needs {', '.join(missing)} before it")
            if at in self.group_at and each.point_of_no_return:
                raise Internal(
                    f"{self.name}: {each.name} cannot be both tried on another host and a point of no return"
                )
            if at not in self.group_at and each.host_local:
                raise Internal(f"{self.name}: {each.name} is host-local, but not within on_some_host")

    def but(self, *steps: Step[InputT, ContextT, Any]) -> "Saga[InputT, ContextT]":
        """Return the saga with some steps replaced, by name; for the proof."""
        changed = {each.name: each for each in steps}
        parts: list[Step[InputT, ContextT, Any] | RetryGroup[InputT, ContextT]] = []
        for part in self.parts:
            if isinstance(part, RetryGroup):
                within = tuple(changed.get(each.name, each) for each in part.steps)
                parts.append(RetryGroup(within, part.max_attempts, part.host))
            else:
                parts.append(changed.get(part.name, part))
        return Saga(
            self.name, self.input_type, *parts, turned=self.turned, ended=self.ended, forward_only=self.forward_only
        )

    def in_group(self, step: str) -> bool:
        """Tell whether a step is tried host by host; false for a step of another version that this one does not have."""
        return step in self.at and self.at[step] in self.group_at

    def covered_from(self, at: int) -> tuple[str, ...]:
        """Return the steps that an intent before step `at` covers: up to the next region step, host or point of no return."""
        names: list[str] = []
        for index in range(at, len(self.steps)):
            each = self.steps[index]
            if each.region or (index > at and index == self.group_at.start and self.group is not None):
                break
            names.append(each.name)
            if each.point_of_no_return:
                break
        return tuple(names)


def first_lines(saga: Saga[Any, Any]) -> list[Line]:
    """Return the first lines of an operation's journal, which its creator writes, so that the first step needs no commit of its own."""
    opening = saga.group is not None and saga.group_at.start == 0
    return [Intent(saga.covered_from(0), 1 if opening and not saga.steps[0].region else 0, traceparent())]


CommitListener: TypeAlias = Callable[[Any, Saga[Any, Any], Run[Any, Any], Sequence[Line]], None]
"""`(tx, saga, run, lines)`: called in every commit of a saga, with the lines it writes."""
