import json

import pytest

from thresher.errors import FormatError, ThresherError
from thresher.training.checkpoint import History, read_history


def test_records_are_lines_and_come_back(tmp_path):
    history = History(tmp_path / "history.jsonl")
    for epoch in (1, 2):
        history.append({"epoch": epoch, "train_loss": 0.1 * epoch})
    assert [json.loads(line) for line in (tmp_path / "history.jsonl").read_text().splitlines()] == history.records
    assert read_history(tmp_path / "history.jsonl") == history.records


def test_an_epoch_is_never_written_twice(tmp_path):
    history = History(tmp_path / "history.jsonl")
    history.append({"epoch": 3})
    with pytest.raises(ThresherError, match="already holds epoch 3, so epoch 3 cannot follow"):
        history.append({"epoch": 3})
    assert read_history(tmp_path / "history.jsonl") == [{"epoch": 3}]


def test_restore_changes_memory_and_file(tmp_path):
    path = tmp_path / "history.jsonl"
    history = History(path)
    for epoch in (1, 2, 3, 4):
        history.append({"epoch": epoch})
    history.restore([{"epoch": 1}, {"epoch": 2}])
    assert read_history(path) == history.records == [{"epoch": 1}, {"epoch": 2}]
    history.append({"epoch": 3, "again": True})
    assert read_history(path)[-1] == {"epoch": 3, "again": True}


def test_a_line_torn_by_a_kill_is_dropped_and_does_not_spoil_the_next(tmp_path):
    path = tmp_path / "history.jsonl"
    path.write_text('{"epoch": 1}\n{"epoch": 2, "tra')
    history = History(path)
    history.restore(read_history(path))
    history.append({"epoch": 2})
    assert read_history(path) == [{"epoch": 1}, {"epoch": 2}]


def test_damage_in_the_middle_is_an_error_with_its_line(tmp_path):
    path = tmp_path / "history.jsonl"
    path.write_text('{"epoch": 1}\n{"epo\n{"epoch": 3}\n')
    with pytest.raises(FormatError, match=r"history.jsonl:2: not a history record"):
        read_history(path)


def test_nan_is_refused_since_json_has_none():
    with pytest.raises(ValueError, match="JSON"):
        History().append({"epoch": 1, "train_loss": float("nan")})
