import json


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


def test_show_a_ticket_says_what_each_field_keeps(finished, thresher):
    content = json.loads(thresher("show", finished.out / "tickets" / "50", "--json").stdout)
    assert content["num_parameters"] == 50
    assert sum(field["entries"] for field in content["fields"]) == 50
    assert [field["field"] for field in content["fields"]] == ["user_id", "item_id", "price"]
    assert "50 entries kept" in thresher("show", finished.out / "tickets" / "50").stdout


def test_show_a_bundle_an_encoded_table_and_results(finished, thresher):
    bundle = json.loads(thresher("show", finished.out / "bundles" / "50", "--json").stdout)
    assert (bundle["kind"], bundle["model"], bundle["num_parameters"]) == ("bundle", "fm", 50)
    table = json.loads(thresher("show", finished.out / "encoded", "--json").stdout)
    assert sum(table["rows"].values()) == 1500
    assert table["label"] == "clicked"
    assert "validation" in thresher("show", finished.out / "results.json").stdout
    for thing in ("bundles/50", "encoded"):
        assert thresher("show", finished.out / thing).exit_code == 0


def test_show_something_else(refused, tmp_path):
    assert "is no run, ticket, bundle or encoded table" in refused("show", tmp_path)
    assert "no such file" in refused("show", tmp_path / "absent")
