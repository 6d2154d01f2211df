"""The model card of a bundle: sizes and metrics of this bundle, and text from the data that cannot break it."""

from thresher.data.schema import DenseColumn, Field, Label, Schema
from thresher.serving.model_card import MAX_FIELDS, loaded_bytes, model_card

SCHEMA = Schema(
    fields=(Field(name="user", size=1000), Field(name="a|b`c\nd", size=3)),
    label=Label(column="clicked"),
    dense=(DenseColumn(name="price"),),
)
METADATA = {
    "label": "pep", "budget": "2%", "seed": 0, "num_parameters": 1282, "storage_bytes": 6780,
    "validation_auc": 0.7638, "test_auc": 0.7529, "test_logloss": 0.5135, "test_calibration": 1.0171,
}  # fmt: skip


def test_card_has_sizes_metrics_and_columns():
    card = model_card("fm", SCHEMA, {"embedding": (1003, 16)}, METADATA, "0.1.0")
    for part in (
        "# fm, pruned to 2%", "Method: `pep`, seed 0", "1,282", "6.78 KB", "1,003 × 16", "| AUC | 0.7638 | 0.7529 |",
        "| logloss | – | 0.5135 |", "| calibration | – | 1.017 |", "| `user` | 1,000 values", "| `price` | number |",
        "thresher.load_bundle",
    ):  # fmt: skip
        assert part in card
    assert "rare rows |" not in card


def test_card_names_the_data_and_its_split():
    data = {"source": "clicks.csv", "split": "by time (column day)", "rows": {"train": 80_000, "test": 1_000}}
    card = model_card("fm", SCHEMA, {}, {"data": data}, "0.1.0")
    assert "- Source: clicks.csv\n- Split: by time (column day)\n- Rows: 80,000 train, 1,000 test\n" in card
    assert "## Data" not in model_card("fm", SCHEMA, {}, {}, "0.1.0")
    for damaged in ("x", {"rows": 3}, {"rows": {"train": "many"}}):  # bundles may come from anybody
        assert "Rows:" not in model_card("fm", SCHEMA, {}, {"data": damaged}, "0.1.0")


def test_names_from_the_data_stay_in_their_cell():
    card = model_card("fm", SCHEMA, {}, {}, "0.1.0")
    assert "| `a¦b'c d` | 3 values" in card
    assert "No metrics were recorded." in card


def test_metrics_from_before_rounding_are_named_as_such():
    card = model_card("fm", SCHEMA, {}, {"value_type": "int8", "before_rounding": {"test_auc": 0.75}}, "0.1.0")
    assert "stored as int8; metrics were measured before rounding" in card
    assert "| AUC | – | 0.7500 |" in card


def test_many_fields_are_cut():
    schema = Schema(fields=tuple(Field(name=f"f{i}") for i in range(MAX_FIELDS + 7)), label=Label(column="y"))
    assert "| 7 more |" in model_card("fm", schema, {}, {}, "0.1.0")


def test_the_card_is_not_loaded_by_a_prediction(tmp_path):
    (tmp_path / "README.md").write_text("card")
    (tmp_path / "bundle.json").write_text("12")
    assert loaded_bytes(tmp_path) == 2
