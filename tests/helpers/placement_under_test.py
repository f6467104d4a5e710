"""The Placement API of an empty database under a Hypothesis state machine, with what the model expects of it."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import httpx
import sqlalchemy as sa
from hypothesis.stateful import (
    RuleBasedStateMachine,
)
from typing_extensions import override

from moorage.api.placement.app import make_placement_app
from moorage.model.principal import Principal
from moorage.placement.engine import Engine
from moorage.scheduler.profile import Profile
from moorage.scheduler.rank import rank
from moorage.sql import Database, Tx
from moorage.store.region.placement import placement_metadata
from tests.helpers.placement_oracle import (
    Thing,
)


@dataclass
class Holder:
    """A consumer that holds something."""

    generation: int
    amounts: dict[tuple[str, str], int]


class PlacementUnderTest(RuleBasedStateMachine):
    """The service, its providers and the consumers that hold something."""

    def __init__(self, loop: asyncio.AbstractEventLoop, database: Database) -> None:
        super().__init__()
        self.loop, self.database = loop, database
        self.things: dict[str, Thing] = {}
        self.holders: dict[str, Holder] = {}
        self.steps = 0
        self.run(database.write(_empty))
        self.engine = Engine(database, partial(rank, profile=Profile()), every_s=3600)
        self.run(self.engine.start())
        app = make_placement_app(self.engine, database, _admin)
        self.http = httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://placement")

    def run(self, coroutine: Any) -> Any:
        return self.loop.run_until_complete(coroutine)

    @override
    def teardown(self) -> None:
        self.run(self.http.aclose())
        self.run(self.engine.close())

    def ask(
        self, method: str, path: str, body: Any = None, query: Sequence[tuple[str, str]] | None = None
    ) -> httpx.Response:
        headers = {"OpenStack-API-Version": "placement 1.39", "X-Auth-Token": "admin"}
        reply: httpx.Response = self.run(
            self.http.request(method, path, json=body, headers=headers, params=query and list(query))
        )
        return reply

    def at(self, index: int) -> Thing:
        return list(self.things.values())[index % len(self.things)]

    def used(self, provider: str, resource: str) -> int:
        return sum(holder.amounts.get((provider, resource), 0) for holder in self.holders.values())


def _empty(tx: Tx) -> None:
    for table in reversed(placement_metadata.sorted_tables):
        tx.run(sa.delete(table))


async def _admin(headers: Any) -> Principal:
    return Principal(user="admin", project="p", roles=("admin", "service"))
