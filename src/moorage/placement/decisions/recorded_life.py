"""One file of decisions read again: each event with the columns as they were when it was written."""

from collections.abc import Iterator
from pathlib import Path

import msgspec

from moorage.model.decision_log import Decided, Event, Header
from moorage.model.world import Ask, Group, World
from moorage.model.world_columns import WorldColumns
from moorage.placement.decisions.segment_file import SegmentReader


class RecordedFile:
    """Events in their order; `problem` says what is missing when they are over."""

    def __init__(self, path: Path) -> None:
        self.reader = SegmentReader(path)
        self.state = WorldColumns()
        self.problem = ""

    @property
    def header(self) -> Header:
        """Known from the first event on."""
        assert self.reader.header is not None
        return self.reader.header

    def __iter__(self) -> Iterator[Event]:
        begun = False
        for record in self.reader:
            if isinstance(record, Header):
                continue
            if self.reader.header is None:
                self.problem = f"{self.reader.path} has no header"
                return
            if isinstance(record, Decided):
                begun |= record.changes.full
                if not begun:
                    self.problem = f"{self.reader.path} does not begin with all columns"
                    return
                try:
                    self.state.apply(record.changes)
                except (ValueError, TypeError, KeyError) as wrong:
                    self.problem = f"{self.reader.path} has columns that this release does not read: {wrong}"
                    return
            yield record
        self.problem = self.reader.problem

    def situation(self, decided: Decided) -> tuple[Ask, World]:
        """What was asked, and the World it was asked of, until the next event is read.

        Raises ValueError for what this release does not read.
        """
        try:
            ask = decided.request()
            groups, pending = self.state.groups, self.state.pending
            groups.clear()
            if ask.group is not None and (members := decided.group) is not None:
                groups[ask.group.id] = Group(dict(members.hosts), members.home)
            pending.clear()
            pending.update({(provider, resource): held for provider, resource, held in decided.pending})
            return ask, self.state.world()
        except (msgspec.MsgspecError, LookupError, TypeError) as wrong:
            raise ValueError(f"{self.reader.path}: {wrong}") from wrong
