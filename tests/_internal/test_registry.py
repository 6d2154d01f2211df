import sys
from dataclasses import dataclass
from typing import ClassVar

import pytest

from thresher._internal.registry import import_modules
from thresher._internal.settings import config_from_mapping, load_toml, override
from thresher.errors import ConfigError, UserCodeError
from thresher.models.base import ModelConfig


@dataclass(frozen=True, kw_only=True)
class Settings:
    config_imports: ClassVar[str] = "imports"
    imports: tuple[str, ...] = ()
    seed: int = 0


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """The current folder, which is not on the Python path, as for an installed command."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [path for path in sys.path if path])
    before = set(sys.modules)
    yield tmp_path
    for name in set(sys.modules) - before:
        if name.startswith("made_up"):
            del sys.modules[name]


def test_modules_of_the_current_folder_are_imported(folder):
    (folder / "made_up_a.py").write_text("import made_up_b\n")
    (folder / "made_up_b.py").write_text("")
    import_modules(["made_up_a"])
    assert {"made_up_a", "made_up_b"} <= set(sys.modules)


def test_installed_modules_come_before_those_of_the_current_folder(folder):
    (folder / "tomllib.py").write_text("raise ValueError")
    del sys.modules["tomllib"]
    import_modules(["tomllib"])


def test_a_missing_module_names_the_places_searched(folder):
    with pytest.raises(UserCodeError, match=r"no module 'made_up' in the current folder .* or on the Python path"):
        import_modules(["made_up"])
    with pytest.raises(UserCodeError, match=r"no module 'made_up.part' in the current folder"):
        import_modules(["made_up.part"])


@pytest.mark.parametrize("name", ["made_up.py", "folder/made_up", "", "made-up"])
def test_a_file_name_is_refused(folder, name):
    with pytest.raises(UserCodeError, match="not the name of a module"):
        import_modules([name])


def test_an_error_inside_a_module_names_its_line(folder):
    (folder / "made_up_wrong.py").write_text("import os\n\nos.no_such_name\n")
    with pytest.raises(UserCodeError, match=r"made_up_wrong.py:3\)\. AttributeError: .*no_such_name"):
        import_modules(["made_up_wrong"])
    (folder / "made_up_missing.py").write_text("import no_such_package\n")
    with pytest.raises(UserCodeError, match=r"made_up_missing.py:1\)\. ModuleNotFoundError: .*no_such_package"):
        import_modules(["made_up_missing"])


def test_a_refused_registration_names_the_user_s_line(folder):
    code = "import thresher\n\n@thresher.register_model('made-up', thresher.FmConfig)\nclass Model:\n    pass\n"
    (folder / "made_up_model.py").write_text(code)
    with pytest.raises(UserCodeError, match=r"made_up_model.py:3\)\. model 'made-up' cannot be registered"):
        import_modules(["made_up_model"])


def test_settings_import_before_other_keys_are_read(folder):
    (folder / "made_up_settings.py").write_text("")
    assert config_from_mapping(Settings, {"seed": 3, "imports": ["made_up_settings"]}).seed == 3
    assert "made_up_settings" in sys.modules


def test_an_import_that_fails_names_file_and_line_of_the_settings(folder):
    (folder / "run.toml").write_text('seed = 1\nimports = ["made_up"]\n')
    with pytest.raises(UserCodeError, match=r"run.toml:2: imports: there is no module 'made_up'"):
        load_toml(Settings, folder / "run.toml")
    with pytest.raises(UserCodeError, match="imports: there is no module 'made_up'"):
        override(Settings(), ["imports=made_up"])


def test_only_classes_that_declare_it_import(folder):
    """Settings inside a bundle come from elsewhere, so they must not import anything."""
    (folder / "made_up_evil.py").write_text("")
    with pytest.raises(ConfigError, match="unknown key 'imports'"):
        config_from_mapping(ModelConfig, {"name": "fm", "imports": ["made_up_evil"]})
    assert "made_up_evil" not in sys.modules
