import json

import pytest
from hypothesis import given, strategies as st

from thresher.errors import FormatError, ThresherError
from thresher.report.frontier import Frontier, FrontierPoint
from thresher.training.metrics import Metrics


def point(num_parameters: int, validation_auc: float, **more) -> FrontierPoint:
    others = {"label": "pep", "storage_bytes": 5 * num_parameters, "validation_logloss": 0.4, **more}
    return FrontierPoint(num_parameters=num_parameters, validation_auc=validation_auc, **others)


DENSE = point(1000, 0.80, label="dense")
points = st.lists(st.builds(point, st.integers(1, 50), st.sampled_from([0.7, 0.75, 0.8, 0.85])), max_size=12)


def test_best_at_each_size():
    frontier = Frontier(points=(point(10, 0.7), point(20, 0.69), point(20, 0.75), point(30, 0.75), point(5, 0.7)))
    assert frontier.best() == (point(5, 0.7), point(20, 0.75))


@given(points)
def test_best_points_are_not_dominated(points):
    best = Frontier(points=tuple(points)).best()
    sizes = [p.num_parameters for p in best]
    assert sizes == sorted(set(sizes))
    for candidate in points:
        matched = [p for p in best if p.num_parameters <= candidate.num_parameters]
        assert max(p.validation_auc for p in matched) >= candidate.validation_auc
    for p in best:
        assert not any(q.num_parameters < p.num_parameters and q.validation_auc >= p.validation_auc for q in points)


def test_smallest_within_a_drop_uses_validation():
    frontier = Frontier(
        points=(point(100, 0.799, test_auc=0.5), point(50, 0.7985, test_auc=0.9), point(10, 0.79, test_auc=0.9)),
        dense=DENSE,
    )
    assert frontier.smallest_within(0.001).num_parameters == 100
    assert frontier.smallest_within(0.002).num_parameters == 50
    assert frontier.smallest_within(0.0) is None
    with pytest.raises(ThresherError, match="no dense model"):
        Frontier(points=frontier.points).smallest_within(0.1)


def test_results_file_has_the_promised_keys_and_reads_back(tmp_path):
    metrics = Metrics(auc=0.8, logloss=0.4, mean_prediction=0.3, mean_label=0.25, rare_auc=None, num_rows=9)
    made = FrontierPoint.from_metrics(
        label="pep",
        budget="30k",
        num_parameters=30_000,
        storage_bytes=140_000,
        validation=metrics,
        test=metrics,
        seed=0,
    )
    assert made.test_calibration == pytest.approx(1.2)
    frontier = Frontier(points=(made,), dense=DENSE, metadata={"dataset": "synthetic", "seconds": 1.5})
    path = tmp_path / "deep" / "results.json"
    frontier.save(path)
    content = json.loads(path.read_text())
    promised = {"num_parameters", "storage_bytes", "validation_auc", "validation_logloss", "test_auc", "test_logloss"}
    assert promised | {"budget"} <= set(content["points"][0])
    assert content["dataset"] == "synthetic"
    assert Frontier.load(path) == frontier


def test_damaged_results_files(tmp_path):
    path = tmp_path / "results.json"
    path.write_text('{"format_version": 99, "points": []}')
    with pytest.raises(FormatError, match=rf"{path}: results have format version 99. This release reads version 1"):
        Frontier.load(path)
    path.write_text('{"format_version": 1, "points": [{"label": "pep"}]}')
    with pytest.raises(FormatError, match=r"incomplete point: .*num_parameters"):
        Frontier.load(path)


def test_unknown_keys_are_ignored():
    content = {**point(3, 0.7).to_json(), "novelty": 1}
    assert FrontierPoint.from_json(content) == point(3, 0.7)


def test_share_of_dense():
    assert Frontier(points=(), dense=DENSE).share_of_dense(point(25, 0.6)) == 0.025
    assert Frontier(points=()).share_of_dense(point(25, 0.6)) is None
