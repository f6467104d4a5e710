"""A statement that is executed again is prepared, and gives the same as through SQLAlchemy, on both databases."""

from typing import Any, cast

import pytest
import sqlalchemy as sa
from sqlalchemy.exc import IntegrityError

from moorage.sql import Database, Tx
from moorage.sql.prepared import prepared_of

metadata = sa.MetaData()
things = sa.Table(
    "things",
    metadata,
    sa.Column("id", sa.String(36), primary_key=True),
    sa.Column("kind", sa.String(36), nullable=False),
    sa.Column("good", sa.Boolean),
    sa.Column("class", sa.BigInteger),
)
_INSERT = things.insert()
_BETTER = (
    things.update()
    .where(things.c.id == sa.bindparam("b_id"), things.c.kind == "k")
    .values(good=sa.bindparam("b_good"))
    .returning(things.c.id, things.c.good)
)
_SOME = sa.union_all(
    sa.select(things).where(
        things.c.id.in_(sa.bindparam("ids", expanding=True)), things.c.kind == sa.bindparam("kind")
    ),
    sa.select(things).where(things.c.kind.in_(["x", "y"]), things.c["class"] > sa.bindparam("least")),
)
_RAW = sa.text('SELECT id, "class" AS size FROM things WHERE id = :id OR kind = :id')


def _row(id: str, kind: str = "k", good: bool | None = None, size: int | None = None) -> dict[str, Any]:
    return {"id": id, "kind": kind, "good": good, "class": size}


def prepared(statement: Any) -> Any:
    """As after its first execution."""
    again = statement.execution_options()
    prepared_of(again)
    return again


@pytest.mark.parametrize("make", [prepared, lambda statement: statement.execution_options()], ids=["again", "first"])
async def test_a_prepared_statement_returns_the_same_rows(database: Database, make: Any) -> None:
    await database.create(metadata)
    insert, better, some, raw = (make(each) for each in (_INSERT, _BETTER, _SOME, _RAW))

    def work(tx: Tx) -> None:
        tx.run(insert, _row("a"))
        tx.run(insert, [_row("b", good=True)])
        tx.run(insert, [_row("c", "x", size=5), _row("d", "y", size=1), _row("e", "x", good=False, size=2**40)])
        assert tx.wrote
        tx.run(insert, {"id": "f", "kind": "k"})

    await database.write(work)

    def change(tx: Tx) -> Any:
        row = tx.row(better, {"b_id": "a", "b_good": True})
        assert (row.id, row.good, row[0], tuple(row)) == ("a", True, "a", ("a", True))
        assert row.good is True
        assert tx.row(better, {"b_id": "c", "b_good": True}) is None
        return tx.rows(better, {"b_id": "b", "b_good": None})

    assert [tuple(row) for row in await database.write(change)] == [("b", None)]

    def look(tx: Tx) -> Any:
        found = [
            sorted(row.id for row in tx.rows(some, {"ids": ids, "kind": "k", "least": 2}))
            for ids in (["a"], ["a", "b", "c"], ["f"], [])
        ]
        assert not tx.wrote
        return found, tx.rows(raw, {"id": "x"}), tx.scalar(raw, {"id": "nobody"})

    found, rows, nothing = await database.read(look)
    assert found == [["a", "c", "e"], ["a", "b", "c", "e"], ["c", "e", "f"], ["c", "e"]]
    assert sorted((row.id, row.size) for row in rows) == [("c", 5), ("e", 2**40)]
    assert nothing is None


async def test_a_broken_constraint_is_the_same_error(database: Database) -> None:
    await database.create(metadata)
    insert = prepared(_INSERT)
    await database.write(lambda tx: tx.run(insert, _row("a")))
    for rows in (_row("a"), [_row("b"), _row("a")]):
        with pytest.raises(IntegrityError):
            await database.write(lambda tx, rows=rows: tx.run(insert, rows))  # type: ignore[misc]
    assert len(await database.read(lambda tx: tx.rows(prepared(sa.select(things))))) == 1


async def test_each_execution_is_counted_once(database: Database) -> None:
    await database.create(metadata)
    insert, find = prepared(_INSERT), prepared(_RAW)
    database.meter.reset()
    await database.write(lambda tx: tx.run(insert, [_row("a"), _row("b")]))
    await database.read(lambda tx: tx.row(find, {"id": "a"}))
    assert sum(database.meter.statements.values()) == 2
    assert sum(database.meter.commits.values()) == 1


async def test_defaults_of_a_table_are_filled_in(database: Database) -> None:
    table = sa.Table("more", sa.MetaData(), sa.Column("id", sa.String(9)), sa.Column("n", sa.Integer, default=7))
    await database.create(table.metadata)
    insert = table.insert()
    for name in ("a", "b", "c"):
        await database.write(lambda tx, name=name: tx.run(insert, {"id": name}))  # type: ignore[misc]
    assert [row.n for row in await database.read(lambda tx: tx.rows(sa.select(table)))] == [7, 7, 7]


async def test_a_statement_derived_from_a_prepared_one_is_separate(database: Database) -> None:
    await database.create(metadata)
    every = sa.select(things.c.id).order_by(things.c.id)
    await database.write(lambda tx: tx.run(_INSERT, [_row("a"), _row("b")]))
    for _ in range(3):
        assert [row.id for row in await database.read(lambda tx: tx.rows(every))] == ["a", "b"]
        narrowed = every.where(things.c.id == "b")
        assert [row.id for row in await database.read(lambda tx, it=narrowed: tx.rows(it))] == ["b"]  # type: ignore[misc]


async def test_rows_of_several_sets_of_parameters_come_back(database: Database) -> None:
    await database.create(metadata)
    insert = things.insert().returning(things.c.id)
    for names in (["a", "b"], ["c", "d"], ["e", "f"]):
        rows = await database.write(lambda tx, names=names: tx.rows(insert, [_row(each) for each in names]))  # type: ignore[misc]
        assert sorted(row.id for row in rows) == names


@pytest.mark.parametrize("most", [20, 3_000])
async def test_lists_of_many_lengths_need_few_statement_texts(database: Database, most: int) -> None:
    """The last element is said again until the length is one of a few."""
    await database.create(metadata)
    names = [f"{number:05}" for number in range(most)]
    among = prepared(sa.select(things.c.id).where(things.c.id.in_(sa.bindparam("ids", expanding=True))))
    but = prepared(sa.select(things.c.id).where(things.c.id.not_in(sa.bindparam("ids", expanding=True))))
    await database.write(lambda tx: tx.run(_INSERT, [_row(each) for each in names]))
    for length in (0, 1, 2, 3, 5, 8, 13, most - 1, most):
        some = names[:length]

        def look(tx: Tx, some: list[str] = some) -> tuple[list[str], list[str]]:
            return [row.id for row in tx.rows(among, {"ids": some})], [row.id for row in tx.rows(but, {"ids": some})]

        inside, outside = await database.read(look)
        assert (sorted(inside), sorted(outside)) == (some, names[length:])
    if database.dialect == "sqlite":
        assert len(cast("Any", prepared_of(among))._forms) <= 7  # 0, 1, 2, 4, 8, 16, and the two long ones together


COLLECTIONS = {
    "list": list,
    "tuple": tuple,
    "set": set,
    "frozenset": frozenset,
    "keys": lambda names: dict.fromkeys(names).keys(),
    "values": lambda names: dict(enumerate(names)).values(),
}


@pytest.mark.parametrize("kind", COLLECTIONS)
async def test_any_collection_may_be_listed_at_any_length(database: Database, kind: str) -> None:
    await database.create(metadata)
    await database.write(lambda tx: tx.run(_INSERT, [_row(each) for each in "abcdefgh"]))
    among = sa.select(things.c.id).where(things.c.id.in_(sa.bindparam("ids", expanding=True)))
    for names in ("abc", "ab", "abcde", "", "a", "abcdefgh"):
        ids: Any = COLLECTIONS[kind](names)  # type: ignore[operator]
        found = await database.read(lambda tx, ids=ids: tx.rows(among, {"ids": ids}))  # type: ignore[misc]
        assert sorted(row.id for row in found) == list(names)


async def test_lists_of_tuples_are_spread_every_time(database: Database) -> None:
    await database.create(metadata)
    await database.write(lambda tx: tx.run(_INSERT, [_row("a", "x"), _row("b", "y"), _row("c", "x")]))
    pairs = sa.select(things.c.id).where(
        sa.tuple_(things.c.id, things.c.kind).in_(sa.bindparam("pairs", expanding=True))
    )
    for wanted in ([("a", "x")], [("a", "x"), ("b", "x")], [("b", "y"), ("c", "x"), ("a", "y")]):
        found = await database.read(lambda tx, wanted=wanted: tx.rows(pairs, {"pairs": wanted}))  # type: ignore[misc]
        assert sorted(row.id for row in found) == sorted(
            id for id, kind in wanted if (id, kind) in {("a", "x"), ("b", "y"), ("c", "x")}
        )


async def test_sets_of_parameters_may_have_lists_of_other_lengths(database: Database) -> None:
    await database.create(metadata)
    await database.write(lambda tx: tx.run(_INSERT, [_row(each) for each in "abcdef"]))
    mark = (
        things.update().where(things.c.id.in_(sa.bindparam("ids", expanding=True))).values(kind=sa.bindparam("b_kind"))
    )
    many = [{"ids": ["a"], "b_kind": "z"}, {"ids": ["b", "c", "d"], "b_kind": "w"}]
    for _ in range(2):
        await database.write(
            lambda tx: [tx.run(mark, {"ids": list(ids), "b_kind": kind}) for ids, kind in (("ab", "x"), ("cdef", "y"))]
        )
        if database.dialect == "sqlite":  # SQLAlchemy takes no lists in an executemany
            await database.write(lambda tx: tx.run(mark, many))  # type: ignore[arg-type]
    rows = await database.read(lambda tx: tx.rows(sa.select(things.c.id, things.c.kind).order_by(things.c.id)))
    kinds = "".join(row.kind for row in rows)
    assert kinds == ("zwwwyy" if database.dialect == "sqlite" else "xxyyyy")
