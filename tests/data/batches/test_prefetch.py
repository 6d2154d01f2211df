import threading
from collections.abc import Iterator

import pytest

from thresher.data.batches.prefetch import prefetched


def test_same_items_in_the_same_order() -> None:
    assert list(prefetched(iter(range(100)), 3)) == list(range(100))


def test_an_error_is_raised_after_the_items_before_it() -> None:
    def items() -> Iterator[int]:
        yield 1
        raise ValueError("here")

    found = prefetched(items(), 2)
    assert next(found) == 1
    with pytest.raises(ValueError, match="here"):
        next(found)


def test_leaving_early_stops_the_thread() -> None:
    before = threading.active_count()
    found = prefetched(iter(range(1_000_000)), 2)
    next(found)
    found.close()  # type: ignore[attr-defined]
    assert threading.active_count() == before


def test_items_are_made_ahead() -> None:
    made = threading.Event()

    def items() -> Iterator[int]:
        yield 0
        made.set()
        yield 1

    found = prefetched(items(), 1)
    next(found)
    assert made.wait(5)
    assert next(found) == 1
