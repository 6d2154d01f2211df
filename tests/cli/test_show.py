import json
import os
import shutil
import subprocess
import sys


def test_show_a_run_with_its_results(finished, thresher):
    printed = thresher("show", finished.out)
    assert printed.exit_code == 0
    assert "20%, 50" in printed.stdout
    assert "to do" in printed.stdout
    assert "dense" in printed.stdout
    content = json.loads(thresher("show", finished.out, "--json").stdout)
    assert content["kind"] == "run"
    assert content["to_do"] == []
    assert content["results"]["points"][1]["num_parameters"] == 50


def test_show_an_unfinished_run(finished, thresher):
    (finished.out / "results.json").unlink()
    (finished.out / "retrained" / "50" / "point.json").unlink()
    content = json.loads(thresher("show", finished.out, "--json").stdout)
    assert content["to_do"] == ["retrained 50"]
    assert "results" not in content


def test_show_a_ticket_by_field(finished, thresher):
    content = json.loads(thresher("show", finished.out / "tickets" / "50", "--json").stdout)
    assert content["num_parameters"] == 50
    assert sum(field["entries"] for field in content["fields"]) == 50
    assert [field["field"] for field in content["fields"]] == ["user_id", "item_id", "price"]
    assert "50 entries kept" in thresher("show", finished.out / "tickets" / "50").stdout


def test_show_a_ticket_of_a_distilled_search(finished, thresher, tmp_path):
    shutil.copytree(finished.out / "encoded", tmp_path / "encoded")
    shutil.copytree(finished.out / "tickets" / "50", tmp_path / "tickets" / "soft-labels-1" / "50")
    content = json.loads(thresher("show", tmp_path / "tickets" / "soft-labels-1" / "50", "--json").stdout)
    assert sum(field["entries"] for field in content["fields"]) == 50


def test_show_a_bundle_by_field(finished, thresher):
    folder = finished.out / "bundles" / "50"
    bundle = json.loads(thresher("show", folder, "--json").stdout)
    assert (bundle["kind"], bundle["model"], bundle["num_parameters"]) == ("bundle", "fm", 50)
    tables = {table["table"]: table for table in bundle["tables"]}
    assert bundle["storage_bytes"] == sum(table["storage_bytes"] for table in tables.values())
    assert list(tables) == sorted(tables, key=lambda name: -tables[name]["storage_bytes"])
    for name, table in tables.items():
        stored = sum(field["storage_bytes"] for field in bundle["fields"] if field["table"] == name)
        assert abs(stored - table["storage_bytes"]) <= len(bundle["fields"])
    fields = [field for field in bundle["fields"] if field["table"] == "embedding"]
    assert sum(field["num_parameters"] for field in fields) == 50
    assert sum(field["num_dropped"] for field in fields) == tables["embedding"]["num_dropped"]
    printed = thresher("show", folder).stdout
    assert "validation auc" in printed
    embedding = next(line for line in printed.splitlines() if line.startswith("embedding ")).split()
    num_dropped, num_features = tables["embedding"]["num_dropped"], tables["embedding"]["num_features"]
    assert [int(part) for part in embedding[4:7]] == [50, num_features - num_dropped, num_dropped]
    for title in ("entries kept", "features kept", "features dropped"):
        assert printed.count(f"  {title}  ") == 2  # of the tables, and of the fields
    user = next(line for line in printed.splitlines() if line.startswith("user_id")).split()
    assert [int(part) for part in user[1:5]] == [
        fields[0]["num_features"],
        fields[0]["num_kept"],
        fields[0]["num_dropped"],
        fields[0]["num_parameters"],
    ]


def test_show_an_encoded_table(finished, thresher):
    table = json.loads(thresher("show", finished.out / "encoded", "--json").stdout)
    assert sum(table["rows"].values()) == 1500
    assert table["label"] == "clicked"
    assert set(table["positive_share"]) == {"train", "validation", "test"}
    price = table["fields"][2]
    assert price["field"] == "price"
    assert set(price["unknown_share"]) == {"train", "validation", "test"}
    assert sum(many for _, many in price["tail"]) == price["features"] - 1
    assert price["head"][0][1] >= price["head"][-1][1]
    printed = thresher("show", finished.out / "encoded").stdout
    user = next(line for line in printed.splitlines() if line.startswith("user_id"))
    assert table["fields"][0]["head"][0][0] in user
    assert "█" in printed  # how often features are seen
    assert max(map(len, printed.splitlines()[4:])) <= 100  # the line with the folder may be longer


def test_figures(finished, thresher, refused, tmp_path):
    for thing in (".", "results.json", "encoded", "bundles/50", "tickets/50"):
        stem = tmp_path / "figures" / thing.replace("/", "-").replace(".", "-")
        printed = thresher("show", finished.out / thing, "--figure", stem, "--json")
        assert printed.exit_code == 0, printed.stderr
        json.loads(printed.stdout)
        assert stem.with_suffix(".png").read_bytes().startswith(b"\x89PNG")
        assert "<svg" in stem.with_suffix(".svg").read_text()
    (finished.out / "results.json").unlink()
    message = refused("show", finished.out / "encoded", "--figure", tmp_path / "k.pdf")
    assert f"figures are .png and .svg. Use {tmp_path / 'k.png'}" in message
    assert "nothing to draw" in refused("show", finished.out, "--figure", tmp_path / "x")


def test_show_results(finished, thresher):
    assert "validation" in thresher("show", finished.out / "results.json").stdout


def test_show_rejects_other_paths(refused, tmp_path, clicks):
    assert f"was not written by Thresher. Look at raw data with: thresher encode {clicks} --dry-run" in (
        refused("show", clicks)
    )
    assert "is not a run, comparison, ticket, bundle or encoded table" in refused("show", tmp_path)
    assert "no such file" in refused("show", tmp_path / "absent")


def test_show_on_an_ascii_terminal(finished):
    command = [sys.executable, "-m", "thresher", "show", str(finished.out / "bundles" / "50")]
    shown = subprocess.run(command, env=os.environ | {"PYTHONIOENCODING": "ascii"}, capture_output=True, check=False)
    assert shown.returncode == 0, shown.stderr
    assert b"\\u" in shown.stdout


def test_open_the_report_page(finished, thresher, monkeypatch):
    opened = []
    monkeypatch.setattr("webbrowser.open", lambda address: opened.append(address) or True)
    printed = thresher("show", finished.out, "--open")
    assert printed.stdout.strip() == str(finished.out / "report" / "index.html")
    assert opened == [(finished.out / "report" / "index.html").resolve().as_uri()]
    (finished.out / "report" / "index.html").unlink()
    missing = thresher("show", finished.out, "--open")
    assert missing.exit_code == 2
    assert "has no report page" in missing.stderr
