"""Places for operations: per kind, project and cell, and a queue that is fair and bounded."""

from moorage.conductor.bulkheads import Berth, Bulkheads, Places, berth_of
from moorage.model.ids import OperationId

PLACES = Places(boots=10, deletes=4, actions=4, project_part=0.5, cell_part=0.5)


def fill(bulkheads: Bulkheads, berth: Berth, count: int) -> int:
    """Ask for so many places; how many there were."""
    for number in range(count):
        bulkheads.wait(OperationId(f"{berth.kind}-{berth.project}-{berth.cell}-{number}"), berth)
    return len(bulkheads.next_ones(count))


def test_a_thousand_boots_leave_places_for_deletes_and_actions() -> None:
    bulkheads = Bulkheads(PLACES)
    assert sum(fill(bulkheads, Berth("boot", f"p{number}"), 100) for number in range(10)) == 10
    assert bulkheads.has_place(Berth("delete", "p1"))
    assert bulkheads.has_place(Berth("action", "p1"))


def test_long_live_migrations_leave_places_for_other_actions() -> None:
    bulkheads = Bulkheads(Places(live_migrations=4, actions=4))
    live = berth_of("live_migrate/1", "p", "cell1")
    assert fill(bulkheads, live, 100) == 2
    for number in range(10):
        fill(bulkheads, berth_of("live_migrate/1", f"p{number}", f"cell{number + 2}"), 10)
    assert not bulkheads.has_place(berth_of("live_migrate/1", "another", "cell3"))
    assert bulkheads.has_place(berth_of("power/1", "p", "cell1"))


def test_an_operation_that_steps_aside_frees_its_place_and_returns() -> None:
    """Those that are queued behind one would keep it from being taken up by another conductor."""
    bulkheads = Bulkheads(Places(live_migrations=4))
    berth = berth_of("live_migrate/1", "p", "cell1")
    for name in ("first", "second"):
        bulkheads.enter(OperationId(name), berth)
    assert not bulkheads.has_place(berth)
    assert bulkheads.step_aside(OperationId("second"))
    assert bulkheads.has_place(berth)
    bulkheads.enter(OperationId("third"), berth)
    bulkheads.step_back(OperationId("second"))
    for name in ("first", "second"):
        bulkheads.leave(OperationId(name))
    assert bulkheads.has_place(berth), "the third has one of two"
    bulkheads.leave(OperationId("third"))
    assert not bulkheads.step_aside(OperationId("third")), "it has none to give"


def test_one_project_gets_half_of_the_places_of_a_kind() -> None:
    bulkheads = Bulkheads(PLACES)
    assert fill(bulkheads, Berth("boot", "greedy"), 100) == 5
    assert fill(bulkheads, Berth("boot", "modest"), 1) == 1


def test_one_cell_gets_half_of_the_places_of_a_kind() -> None:
    bulkheads = Bulkheads(PLACES)
    assert sum(fill(bulkheads, Berth("delete", f"p{number}", "dead-cell"), 10) for number in range(10)) == 2
    assert fill(bulkheads, Berth("delete", "p1", "cell2"), 1) == 1


def test_a_boot_counts_for_no_cell_and_every_other_kind_for_its_servers() -> None:
    assert berth_of("boot/1", "p", "cell1") == Berth("boot", "p")
    assert berth_of("delete/2", "p", "cell1") == Berth("delete", "p", "cell1")
    assert berth_of("power/1", "p", None) == Berth("action", "p")


def test_the_queue_serves_projects_in_turn_and_each_in_its_order() -> None:
    bulkheads = Bulkheads(Places(boots=4, project_part=1.0))
    for number in range(50):
        bulkheads.wait(OperationId(f"a{number}"), Berth("boot", "a"))
    for number in range(2):
        bulkheads.wait(OperationId(f"b{number}"), Berth("boot", "b"))
    assert bulkheads.next_ones(100) == ["a0", "b0", "a1", "b1"]
    assert bulkheads.next_ones(100) == []
    assert bulkheads.leave(OperationId("b0"))
    assert bulkheads.next_ones(100) == ["a2"]


def test_the_queue_is_bounded_and_has_no_duplicates() -> None:
    bulkheads = Bulkheads(PLACES, queue_max=3)
    berth = Berth("boot", "p")
    assert [bulkheads.wait(OperationId(str(number)), berth) for number in (1, 1, 2, 3, 4)] == [True] * 4 + [False]
    assert bulkheads.waiting == 3


def test_released_places_leave_no_counters() -> None:
    bulkheads = Bulkheads(PLACES)
    for number in range(100):
        operation = OperationId(str(number))
        bulkheads.wait(operation, Berth("action", f"project-{number}", f"cell-{number}"))
        assert bulkheads.next_ones(1) == [operation]
        assert not bulkheads.leave(operation)
    assert not bulkheads._counts
    assert not bulkheads._queues


def test_a_lost_lease_halves_the_places_and_renewals_add_more() -> None:
    bulkheads = Bulkheads(Places(boots=100, deletes=4, actions=4, project_part=1.0))
    assert fill(bulkheads, Berth("boot", "p"), 60) == 60
    for turn in (30, 15, 7):
        bulkheads.give_fewer()
        for number in range(60):
            if (operation := OperationId(f"boot-p--{number}")) in bulkheads:
                bulkheads.leave(operation)
        bulkheads.give_fewer()  # with nothing under way it stays as it is
        bulkheads.forget_waiting()
        assert fill(bulkheads, Berth("boot", "p"), 60) == turn
    assert bulkheads.has_place(Berth("delete", "p")), "of a kind that had nothing under way all places are there"
    places = []
    while bulkheads.give_more():
        bulkheads.forget_waiting()
        fill(bulkheads, Berth("boot", "p"), 200)
        places.append(sum(OperationId(f"boot-p--{number}") in bulkheads for number in range(200)))
        assert len(places) < 30, "it never has all its places again"
    assert places[:4] == [8, 10, 12, 15]
    assert places[-1] == 100


def test_a_single_operation_begins_again_after_a_lost_lease() -> None:
    bulkheads = Bulkheads(PLACES)
    assert fill(bulkheads, Berth("action", "p"), 1) == 1
    bulkheads.give_fewer()
    bulkheads.leave(OperationId("action-p--0"))
    assert fill(bulkheads, Berth("action", "p"), 1) == 1
