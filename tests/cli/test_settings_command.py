"""thresher settings, and the page that is made of the same list."""

import json
import runpy
from pathlib import Path

import pytest

from thresher._internal.settings import override
from thresher.cli.settings_command import COMPARE, all_settings, find_settings
from thresher.experiment.config import RunConfig

DOCS = Path(__file__).parents[2] / "docs"


def test_every_setting_has_a_description():
    missing = [f"{s.key} {'/'.join(s.variants)}" for s in all_settings() if not s.description.endswith((".", ")"))]
    assert missing == [], "describe the field in a string below it, in sentences"


def test_every_default_can_be_set_by_its_key():
    for setting in all_settings():
        if setting.default in ("", "absent", "required") or setting.variants == (COMPARE,) or "[]" in setting.key:
            continue
        tags = {"model": "model.name", "embedding": "embedding.method"}
        tag = [f"{tags[setting.table]}={setting.variants[0]}"] if setting.variants else []
        override(RunConfig(), [*tag, f"{setting.key}={setting.default}"])


def test_the_page_is_in_step_with_the_code():
    page = runpy.run_path(str(DOCS / "make_settings.py"))["settings_page"]()
    assert page == (DOCS / "settings.md").read_text(encoding="utf-8"), "run: python docs/make_settings.py"


def test_all_settings_by_table(thresher):
    result = thresher("settings")
    assert result.exit_code == 0, result.stderr
    assert "\n[search.optimizer]\n" in result.stdout
    assert "\n[[data.fields]]\n" in result.stdout
    assert "\nmax_auc_drop " in result.stdout
    assert result.stdout.index("\nthresher compare\n") < result.stdout.index("\ntrials ")


def test_one_setting(thresher):
    result = thresher("settings", "training.patience")
    assert result.stdout == (
        "training.patience\n"
        "    Epochs without improvement after which training stops.\n"
        "    Expected: an integer. Default: 3.\n"
    )
    assert thresher("settings", "average_decay").stdout.startswith("training.average_decay\n")


@pytest.mark.parametrize("key", ["training", "[training]", "training."])
def test_a_table(key):
    keys = [setting.key for setting in find_settings(all_settings(), key)]
    assert keys[0] == "training"
    assert {"training.batch_size", "training.optimizer.learning_rate"} <= set(keys)
    assert all(key.startswith("training") for key in keys)


def test_a_name_that_several_tables_have():
    found = find_settings(all_settings(), "learning_rate")
    assert [setting.key for setting in found] == ["search.optimizer.learning_rate", "training.optimizer.learning_rate"]
    (field_name,) = find_settings(all_settings(), "data.fields[].separator")
    assert field_name.name == "separator"


def test_settings_of_methods_name_them(thresher):
    assert "    Only for: pep.\n" in thresher("settings", "embedding.granularity").stdout
    assert "    Only for: thresher compare.\n" in thresher("settings", "trials").stdout


def test_an_unknown_setting_suggests_the_nearest(refused):
    assert refused("settings", "search.plan_epoch").endswith("Did you mean 'search.plan_epochs'?")
    assert refused("settings", "batchsize").endswith("Did you mean 'batch_size'?")
    assert refused("settings", "zzz").endswith("See all with: thresher settings")


def test_json(thresher):
    (found,) = json.loads(thresher("settings", "training.batch_size", "--json").stdout)
    assert (found["key"], found["default"], found["expects"]) == ("training.batch_size", "1024", "an integer")
    assert len(json.loads(thresher("settings", "--json").stdout)) == len(all_settings())
