"""Memory that loading a bundle needed only for a while."""

import gc
import weakref

import pytest

from thresher.server.memory import give_back


class Cycle:
    def __init__(self):
        self.own = self


@pytest.fixture(autouse=True)
def unfrozen():
    yield
    gc.unfreeze()


def test_a_replaced_object_with_a_cycle_is_freed():
    loaded = Cycle()
    freed = weakref.ref(loaded)
    give_back()
    del loaded
    give_back()
    assert freed() is None
