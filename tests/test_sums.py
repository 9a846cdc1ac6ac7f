"""Sums over items, whatever their order."""

from hypothesis import given
from hypothesis import strategies as st

from esnlm.utils.sums import in_pairs, reduce_here, runs


@given(st.integers(1, 300), st.integers(1, 50))
def test_runs_are_added_as_their_items_are(n: int, most: int) -> None:
    def add(a: str, b: str) -> str:
        return f"({a}{b})"

    found = runs(n, most)
    assert len(found) <= most
    assert [i for run in found for i in run] == list(range(n))

    def over(number: int) -> str:
        run = found[number]
        return in_pairs(len(run), lambda i: f"{run[i]},", add)

    assert in_pairs(len(found), over, add) == in_pairs(n, lambda i: f"{i},", add)


def test_items_are_added_in_the_order_of_their_numbers() -> None:
    done: list[str] = []
    found = reduce_here("letters", lambda given, item: given + item, "-", "abc", done.append)
    assert (found, done) == ("-a-b-c", ["a", "b", "c"])
