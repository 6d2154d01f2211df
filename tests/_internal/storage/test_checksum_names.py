"""A damaged name of the checksum's key does not make a file count as one without a checksum."""

import json

import pytest

from thresher._internal.storage.files import read_json, write_json
from thresher.errors import FormatError


def test_a_checksum_under_another_name_is_damage(tmp_path):
    path = tmp_path / "point.json"
    write_json(path, {"auc": 0.5})
    path.write_text(path.read_text().replace('"checksum"', '"chucksum"'))
    with pytest.raises(FormatError, match="checksum does not match"):
        read_json(path)


def test_files_without_a_checksum_are_read(tmp_path):
    path = tmp_path / "point.json"
    path.write_text(json.dumps({"auc": 0.5}))
    assert read_json(path) == {"auc": 0.5}
