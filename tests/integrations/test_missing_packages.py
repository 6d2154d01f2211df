import importlib
import sys

import pytest

from thresher.errors import MissingExtraError


def test_the_extra_that_brings_lightning_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "lightning.pytorch", None)
    monkeypatch.delitem(sys.modules, "thresher.integrations.lightning", raising=False)
    with pytest.raises(MissingExtraError, match=r"pip install 'thresher-embeddings\[lightning\]'"):
        importlib.import_module("thresher.integrations.lightning")


def test_the_command_that_installs_torchrec_is_named(monkeypatch):
    for name in list(sys.modules):
        if name.startswith(("thresher.integrations.torchrec", "thresher.integrations.sharding")):
            monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "torchrec", None)
    with pytest.raises(MissingExtraError, match="make torchrec"):
        importlib.import_module("thresher.integrations.torchrec")
