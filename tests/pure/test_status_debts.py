"""What `moorage status` says of what hosts owe."""

from moorage.cli import status


def test_nothing_is_said_when_nothing_is_owed() -> None:
    assert status.debts(status.NO_DEBTS) == []


def test_hosts_with_the_oldest_debts_are_named_first_and_their_number_has_a_limit() -> None:
    hosts = [{"host": f"h{number}", "debts": 1, "oldest_age_s": 100 - number} for number in range(12)]
    said = status.debts({"debts": [], "hosts": hosts, "count": 12, "oldest_age_s": 100})
    assert said[1].startswith("WARNING: hosts owe 12 things to servers, the oldest for 100 s")
    assert said[2] == "  h0 owes 1, the oldest for 100 s"
    assert said[-1] == "  and 2 more hosts"
