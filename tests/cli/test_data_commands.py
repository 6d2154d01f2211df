"""encode: output, bad rows, later files, dry runs."""

import json
import re

import pytest

from thresher.data.encode import user_files
from thresher.data.table import EncodedTable

pytestmark = pytest.mark.usefixtures("without_pictures")


@pytest.fixture
def damaged(clicks):
    """Clicks with a short line, an invalid label and an invalid price."""
    lines = clicks.read_text().splitlines()
    lines[100], lines[200], lines[300] = "1,u1,i1", "7,u1,i1,3.5", "1,u1,i1,dear"
    clicks.write_text("\n".join(lines) + "\n")
    return clicks


LABEL = ["--label", "clicked", "--fields", "user_id,item_id,price:log2"]


def test_encode_output(thresher, clicks, tmp_path):
    printed = thresher("encode", clicks, *LABEL, "--min-count", "3", "--out", tmp_path / "table")
    assert printed.exit_code == 0, printed.stderr
    assert "min count       3" in printed.stdout
    price = next(line for line in printed.stdout.splitlines() if line.startswith("price"))
    assert "log2" in price
    content = json.loads(
        thresher("encode", clicks, *LABEL, "--min-count", "3", "--out", tmp_path / "table", "--json").stdout
    )
    table = EncodedTable.open(tmp_path / "table")
    assert content["rows"] == table.metadata["rows"]
    assert [field["features"] for field in content["fields"]] == list(table.schema.field_sizes)
    last = content["fields"][-1]
    assert last["unknown_share"]["train"] == pytest.approx(
        float((table.split("train").ids[:, -1] == table.schema.field_offsets[-1]).mean())
    )


def test_bad_rows_error_names_the_skip_option(refused, damaged, tmp_path, fast):
    message = refused("encode", damaged, *LABEL, "--out", tmp_path / "table")
    assert f"{damaged}:101: has 3 columns, expected 4" in message
    assert "--bad-rows skip" in message
    assert "--set data.bad_rows=skip" in refused("prune", damaged, *LABEL, "--out", tmp_path / "run", *fast)
    assert "error" in refused("encode", damaged, *LABEL, "--bad-rows", "drop", "--out", tmp_path / "table")


def test_text_under_a_numeric_transform(refused, tmp_path):
    (path := tmp_path / "shops.csv").write_text(
        "clicked,shop\n" + "".join(f"{row % 2},{'Toys' if row % 9 else 7}\n" for row in range(300))
    )
    words = ["encode", path, *LABEL, "--out", tmp_path / "table"]
    for transform in ("log2", "quantiles", "date"):
        message = refused(*words, "--fields", f"shop:{transform}")
        first, second = "without a transform if its values are categories", "--bad-rows skip to leave such rows out"
        assert 0 < message.index(first) < message.index(second)
    message = refused(*words, "--fields", "shop:log2", "--bad-rows", "skip")
    assert f"{path}:3: 266 of 300 rows are bad" in message
    assert "(column 'shop': 'Toys' is not a number). Check the transform of the column" in message


def test_many_skipped_rows_are_a_warning(thresher, tmp_path, fast):
    rows = "".join(f"{row % 2},u{row % 7},{'none' if row % 10 == 0 else row}\n" for row in range(600))
    (path := tmp_path / "prices.csv").write_text("clicked,user_id,price\n" + rows)
    words = [path, *LABEL, "--fields", "user_id,price:log2", "--set", "data.bad_rows=skip", "--budgets", "50"]
    pruned = thresher("prune", *words, "--out", tmp_path / "run", *fast)
    assert pruned.exit_code == 0, pruned.stderr
    expected = "60 of 600 rows (10 %) are bad and were left out. The first: column 'price': 'none' is not a number."
    assert f"Warning: {expected}" in pruned.stderr
    assert expected in pruned.stdout
    assert "60 of 600 rows (10 %) are bad" in (tmp_path / "run" / "report" / "index.html").read_text()


def test_skipped_rows_are_counted_and_shown(thresher, damaged, tmp_path, fast):
    words = ["encode", damaged, *LABEL, "--bad-rows", "skip", "--out", tmp_path / "table"]
    printed = thresher(*words)
    assert printed.exit_code == 0, printed.stderr
    assert "bad rows left out: 3; the first:" in printed.stdout
    for place in (
        "clicks.csv:101: has 3 columns",
        "clicks.csv:201: column 'clicked': '7'",
        "clicks.csv:301: column 'price'",
    ):
        assert place in printed.stdout
    content = json.loads(thresher(*words, "--json").stdout)
    assert content["skipped_rows"] == 3
    assert {sample["line"] for sample in content["skipped_samples"]} == {101, 201, 301}
    assert sum(content["rows"].values()) == 1497
    assert "bad rows left out: 3" in thresher("show", tmp_path / "table").stdout
    run = tmp_path / "run"
    pruned = thresher("prune", damaged, *LABEL, "--set", "data.bad_rows=skip", "--budgets", "50", "--out", run, *fast)
    assert pruned.exit_code == 0, pruned.stderr
    assert "Bad rows left out: 3" in pruned.stderr


def test_columns_are_guessed_despite_bad_rows(thresher, damaged):
    guessed = thresher("encode", damaged, "--label", "clicked", "--bad-rows", "skip", "--dry-run")
    assert guessed.exit_code == 0, guessed.stderr
    assert "user_id  categorical: text, 50 distinct values" in guessed.stderr


def test_dry_run_writes_nothing(thresher, refused, clicks, tmp_path):
    printed = thresher("encode", clicks, *LABEL, "--dry-run")
    assert printed.exit_code == 0, printed.stderr
    assert "rows            1,500" in printed.stdout
    price = next(line for line in printed.stdout.splitlines() if line.startswith("price"))
    assert "log2" in price
    assert "→" in price  # raw value → bucket
    found = json.loads(thresher("encode", clicks, *LABEL, "--dry-run", "--json").stdout)
    assert [field["name"] for field in found["fields"]] == ["user_id", "item_id", "price"]
    assert found["fields"][0]["distinct"] == 50
    guessed = thresher("encode", clicks, "--dry-run")
    assert "categorical: text" in guessed.stderr
    assert list(tmp_path.iterdir()) == [clicks]
    assert "--out" in refused("encode", clicks, *LABEL)


def test_date_parts_and_constant_columns(thresher, tmp_path):
    (path := tmp_path / "days.csv").write_text(
        "clicked,day,month\n" + "".join(f"{row % 2},2024-03-{row % 28 + 1:02},{row % 12}\n" for row in range(200))
    )
    assert "day date: text of dates, the weekday" in " ".join(thresher("encode", path, "--dry-run").stderr.split())
    words = ["encode", path, "--label", "clicked", "--dry-run", "--fields"]
    shown = thresher(*words, "day:date,month").stdout
    assert "constant in these rows, so without information: day" in shown
    found = json.loads(thresher(*words, "day:weekday,month", "--json").stdout)
    assert [field["distinct"] for field in found["fields"]] == [7, 12]
    assert "one value" not in thresher(*words, "day:weekday,month").stdout


def test_dry_run_shows_bad_rows(thresher, damaged):
    printed = thresher("encode", damaged, *LABEL, "--bad-rows", "skip", "--dry-run")
    assert "bad rows left out: 1; the first:\n  clicks.csv:101: has 3 columns" in printed.stdout
    assert "bad labels      1" in printed.stdout


def test_help_of_data_arguments(thresher):
    message = {verb: " ".join(thresher(verb, "--help").stdout.split()) for verb in ("encode", "prune")}
    assert "written by thresher encode" in message["prune"].replace(" │ │ ", " ")
    assert "encode made" not in message["encode"].replace(" │ │ ", " ")
    assert "with an optional transform" in " ".join(re.sub("[│-]", " ", message["encode"]).split())


def test_nan_text_is_missing_in_numeric_fields(thresher, tmp_path):
    (path := tmp_path / "rows.csv").write_text("click,price,word\n" + "0,NaN,NaN\n1,NaN,NaN\n0,2.5,\n1,9.5,b\n")
    found = json.loads(thresher("encode", path, "--fields", "price:log2,word", "--dry-run", "--json").stdout)
    assert [field["missing_share"] for field in found["fields"]] == [0.5, 0.25]
    shown = thresher("encode", path, "--fields", "price:log2,word", "--dry-run").stdout
    assert "NaN → missing, " in shown
    assert " NaN, (empty), b" in shown


@pytest.fixture
def answers(tmp_path):
    path = tmp_path / "answers.csv"
    rows = [f"{'yes' if at % 3 else 'no'},u{at % 7}" for at in range(90)]
    path.write_text("\n".join(["bought,user", *rows, "maybe,u1", ",u2"]) + "\n")
    return path


def test_dry_run_shows_the_meaning_of_label_values(thresher, refused, answers, tmp_path):
    words = ["encode", answers, "--label", "bought", "--dry-run"]
    shown = thresher(*words, "--positive", "yes")
    assert "label values    yes (60) → 1; no (30), maybe (1) → 0; empty (1) → no label\n" in shown.stdout
    assert "bought  label: as you set it; yes (60) → 1; no (30), maybe (1) → 0" in shown.stderr
    assert "positive share  0.6593" in shown.stdout  # of the 91 rows that have a label
    assert "bad labels      1; set" in shown.stdout
    values = json.loads(thresher(*words, "--positive", "yes", "--json").stdout)["label_values"]
    assert values[:2] == [{"value": "yes", "count": 60, "meaning": 1}, {"value": "no", "count": 30, "meaning": 0}]
    shown = thresher(*words)
    assert "nothing → 1; yes (60), no (30), empty (1), maybe (1) → no label" in shown.stdout
    assert "set `positive` to the values that mean 1" in shown.stderr
    assert "Set data.positive" in refused("encode", answers, "--label", "bought", "--out", tmp_path / "out")
    assert "--positive" in refused("encode", answers, "--dry-run")


@pytest.mark.parametrize("fields", [[], ["--fields", "user"]], ids=["guessed", "given"])
def test_positive_values_that_do_not_occur(thresher, refused, answers, tmp_path, fields):
    words = ["encode", answers, "--label", "bought", *fields]
    message = refused(*words, "--positive", "YES", "--out", tmp_path / "out")
    assert "answers.csv: column 'bought': data.positive is 'YES', but no row" in message
    assert "Found 'yes', 'no', '', 'maybe'. Did you mean 'yes'?" in message
    assert not (tmp_path / "out").exists()
    message = thresher(*words, "--positive", "si", "--dry-run").stderr
    assert "No label in the sampled rows is 'si' (--positive). Found 'yes', 'no', '', 'maybe'." in message
    assert "No label" not in thresher(*words, "--positive", "yes", "--dry-run").stderr
    answers.write_text(answers.read_text().replace("yes", "1.0").replace("no", "0.0"))
    assert "Did you mean '1.0'?" in refused(*words, "--positive", "1", "--dry-run")


def test_vocabulary_like_an_earlier_table(thresher, refused, clicks, tmp_path):
    earlier = tmp_path / "earlier"
    assert thresher("encode", clicks, *LABEL, "--out", earlier).exit_code == 0
    later = tmp_path / "later.csv"
    head, *lines = clicks.read_text().splitlines()
    new = [line.replace(",u1,", ",visitor,").replace(",u2,", ",stranger,") for line in lines]
    later.write_text("\n".join([head, *new]) + "\n")
    sizes = {}
    for new_values in ("unknown", "append"):
        out = tmp_path / new_values
        words = ["encode", later, "--vocabulary-like", earlier, "--new-values", new_values, "--out", out]
        assert thresher(*words).exit_code == 0
        sizes[new_values] = EncodedTable.open(out).schema.field_sizes
    before = EncodedTable.open(earlier).schema.field_sizes
    assert sizes["unknown"] == before
    assert sizes["append"] == (before[0] + 2, *before[1:])
    unknown = json.loads(thresher("show", tmp_path / "unknown", "--json").stdout)["fields"][0]["unknown_share"]
    assert unknown["train"] > 0.02
    missing = refused("encode", later, "--vocabulary-like", tmp_path / "absent", "--out", tmp_path / "x")
    assert str(tmp_path / "absent") in missing


def test_memory_and_vocabulary_options(thresher, refused, clicks, tmp_path):
    words = ["encode", clicks, *LABEL, "--out", tmp_path / "table"]
    assert "at least 100" in refused(*words, "--memory-mb", "5")
    assert thresher(*words, "--memory-mb", "200", "--vocabulary-from", "all").exit_code == 0
    plan = EncodedTable.open(tmp_path / "table").metadata["inputs"]["plan"]
    assert plan["vocabulary_from"] == "all"
    assert "--vocabulary-from" in refused(*words, "--vocabulary-from", "test")


def test_prune_from_an_encoded_table(thresher, refused, finished, clicks, fast, tmp_path):
    """Results equal those from the raw file."""
    table, out = tmp_path / "table", tmp_path / "again"
    assert thresher("encode", clicks, "--label", "clicked", "--out", table).exit_code == 0
    clicks.unlink()
    words = ["prune", table, "--budgets", "20%,50", "--out", out, *fast]
    pruned = thresher(*words)
    assert pruned.exit_code == 0, pruned.stderr
    before, now = (json.loads((folder / "results.json").read_text()) for folder in (finished.out, out))
    sizes = [[point.pop("bundle_bytes") for point in found["points"]] for found in (now, before)]
    assert now["points"] == before["points"]
    assert all(abs(one - other) < 64 for one, other in zip(*sizes, strict=True))  # bundles name the source of the rows
    assert thresher(*words, "--resume").exit_code == 0
    assert "is already encoded" in refused("prune", table, "--min-count", "3", "--out", tmp_path / "x")
    assert "is already encoded" in refused("encode", table, "--dry-run")
    message = refused("encode", table, "--out", finished.out / "bundles", "--force")
    assert "is not an encoded table" in message
    assert (finished.out / "bundles" / "50").exists()


def test_named_data_sets_with_files(thresher, refused, tmp_path):
    from generated_data import write_avazu_like, write_criteo_like

    write_criteo_like(tmp_path / "criteo.txt", 400)
    write_avazu_like(tmp_path / "avazu.csv", 400)
    for name, file, num_fields in (("criteo", "criteo.txt", 39), ("avazu", "avazu.csv", 22)):
        printed = thresher("encode", name, tmp_path / file, "--min-count", "2", "--out", tmp_path / name, "--json")
        assert printed.exit_code == 0, printed.stderr
        assert len(json.loads(printed.stdout)["fields"]) == num_fields
    assert "data_dir" in refused("encode", "criteo", "--out", tmp_path / "x")
    assert refused("encode", "synthetic", tmp_path / "avazu.csv", "--out", tmp_path / "x")


def test_real_criteo_and_avazu_by_name(thresher, data_dir, tmp_path):
    for name, rows in (("criteo", 137_139), ("avazu", 20_000)):
        printed = thresher("encode", name, "--data-dir", data_dir / name, "--dry-run", "--json")
        assert json.loads(printed.stdout)["rows_estimated"] == pytest.approx(rows, rel=0.1)


def test_given_fields_are_shown_with_the_guessed_label(thresher, clicks):
    message = thresher("encode", clicks, "--fields", "user_id,price:log2", "--dry-run").stderr
    assert "Columns used, with a guessed label (change it with --label):" in message
    assert "  clicked  label: by its name, and it is 0/1" in message
    assert "  user_id  field: as you set it\n" in message
    assert "  price    field: as you set it, log2" in message
    assert "Not used: item_id" in message
    assert "categorical" not in message
    assert "Columns" not in thresher("encode", clicks, "--label", "clicked", "--fields", "user_id", "--dry-run").stderr


@pytest.mark.parametrize("command", ["prune", "search", "compare", "encode"])
def test_columns_are_guessed_once_and_shown(thresher, clicks, tmp_path, fast, monkeypatch, command):
    guessed = []
    guess = user_files.guess_columns
    monkeypatch.setattr(user_files, "guess_columns", lambda *args: guessed.append(1) or guess(*args))
    compared = ["--methods", "uniform", "--seeds", "1", "--epochs", "1", "--trials", "1"]
    more = {"prune": fast, "search": fast, "compare": compared, "encode": []}[command]
    budgets = [] if command == "encode" else ["--budgets", "20%"]
    printed = thresher(command, clicks, *budgets, "--out", tmp_path / "out", *more)
    assert printed.exit_code == 0, printed.stderr
    assert printed.stderr.count("Guessed columns (change them with --label, --fields, --drop):") == 1
    assert len(guessed) == 1


def test_a_split_column_implies_a_split_by_column(thresher, refused, clicks, tmp_path):
    header, *rows = clicks.read_text().splitlines()
    folds = ["train"] * 1000 + ["validation"] * 300 + ["test"] * 200
    text = [f"{header},fold", *(f"{row},{fold}" for row, fold in zip(rows, folds, strict=True))]
    clicks.write_text("\n".join(text) + "\n")
    words = ["encode", clicks, "--out", tmp_path / "table", "--set", "data.split.column=fold"]
    printed = thresher(*words)
    assert printed.exit_code == 0, printed.stderr
    assert "fold     not used: it decides the split" in printed.stderr
    assert EncodedTable.open(tmp_path / "table").metadata["rows"] == {"train": 1000, "validation": 300, "test": 200}
    assert "has no effect in a split by random" in refused(*words, "--set", "data.split.by=random")
    message = refused(*words[:-1], "data.split.column=price", "--force")
    assert "must be train, validation or test; to split by time, set data.split.by" in message


def test_untrained_unknown_values_are_shown(thresher, clicks, tmp_path, fast):
    header, *rows = clicks.read_text().splitlines()
    clicks.write_text("\n".join([f"{header},visitor", *(f"{row},v{at // 2}" for at, row in enumerate(rows))]) + "\n")
    words = "many validation rows have a value that no training row has: visitor ("
    assert words in thresher("encode", clicks, "--dry-run").stderr
    assert words in thresher("encode", clicks, "--out", tmp_path / "table").stderr
    assert words in thresher("prune", clicks, "--out", tmp_path / "run", "--budgets", "20%", *fast).stderr
    for more in (["--dry-run"], ["--out", tmp_path / "other"]):
        assert words not in thresher("encode", clicks, "--min-count", "2", *more).stderr


def test_interrupted_encode(thresher, clicks, tmp_path, monkeypatch):
    def interrupted(*args, **more):
        raise KeyboardInterrupt

    monkeypatch.setattr("thresher.data.encode.encode.encode", interrupted)
    result = thresher("encode", clicks, *LABEL, "--out", tmp_path / "table")
    assert result.exit_code == 130
    assert "Interrupted." in result.stderr


def test_names_of_several_fields_of_one_column(thresher, clicks, refused):
    words = ["encode", clicks, *LABEL, "--dry-run", "--json", "--fields"]
    found = json.loads(thresher(*words, "user_id,price:log2,price:quantiles").stdout)
    message = [(field["name"], field["column"]) for field in found["fields"]]
    assert message == [("user_id", "user_id"), ("price:log2", "price"), ("price:quantiles", "price")]
    assert "two fields are called 'user_id'" in refused(*words, "user_id,user_id")


def test_rare_positive_label_values_are_shown(thresher, clicks):
    words = ["encode", clicks, "--label", "price", "--fields", "user_id", "--dry-run"]
    prices = [line.split(",")[-1] for line in clicks.read_text().splitlines()[1:]]
    price = max(value for value in prices if prices.count(value) == 1)
    shown = thresher(*words, "--positive", price).stdout
    assert f"{price} (1) → 1" in " ".join(shown.split())
