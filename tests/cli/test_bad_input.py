"""Errors in files, options and folders: one message that names the place and the fix; no files are left behind."""

import os
import resource
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from thresher._internal.settings import override
from thresher.experiment.config import RunConfig

pytestmark = pytest.mark.usefixtures("without_pictures")

HEAD = "clicked,user_id,item_id,price\n"
ROWS = "".join(f"{i % 2},u{i % 7},i{i % 11},{i}\n" for i in range(200))


def bad_file(folder: Path, content: str | bytes, name: str = "bad.csv") -> Path:
    path = folder / name
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


@pytest.mark.parametrize("command", ["prune", "search", "encode"])
@pytest.mark.parametrize(
    ("content", "line", "words"),
    [
        pytest.param("", None, ["empty"], id="empty file"),
        pytest.param(HEAD, None, ["no rows"], id="header only"),
        pytest.param(HEAD + ROWS + "1,u1,i1\n" + ROWS, 202, ["3", "4"], id="ragged row, short"),
        pytest.param(HEAD + ROWS + "1,u1,i1,2,9\n" + ROWS, 202, ["5", "4"], id="ragged row, long"),
        pytest.param("clicked,user_id,user_id,price\n" + ROWS, 1, ["user_id"], id="duplicated column"),
        pytest.param(HEAD + ROWS + "2,u1,i1,2\n", 202, ["clicked", "2"], id="label not binary"),
        pytest.param(HEAD + ROWS.replace("0,u", "1,u"), None, ["clicked", "1"], id="one class only"),
        pytest.param((HEAD + ROWS).encode() + b"1,\xff\xfe,i1,2\n", 202, ["UTF-8"], id="not UTF-8"),
    ],
)
def test_broken_files(refused, tmp_path, fast, command, content, line, words):
    path, out = bad_file(tmp_path, content), tmp_path / "out"
    options = [] if command == "encode" else fast
    message = refused(command, path, "--label", "clicked", "--out", out, *options)
    assert f"{path}:{line}:" in message if line else path.name in message
    for word in words:
        assert word in message
    assert len(message) < 400
    assert sorted(tmp_path.iterdir()) == [path], "something was left behind"


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["absent.csv"], "absent.csv: no such file in "),
        (["FILE", "--set", 'data.delimiter="::"'], "data.delimiter is '::'; it must be one ASCII character"),
        (["FILE", "--set", 'data.quote="ab"'], "data.quote is 'ab'; it must be one ASCII character (empty for none)"),
        (["FILE", "--set", 'data.columns=["y","a","a"]'], "two columns are called 'a'"),
        (["movilens-1m"], "Did you mean the data set 'movielens-1m'?"),
        (["*.nothing"], "no file matches"),
        (["."], "is a folder"),
        ([], "No data given. Name your files, or one of: "),
        (["FILE", "--label", "click"], "clicked"),
        (["FILE", "--fields", "user_id,itm_id"], "item_id"),
        (["FILE", "--fields", "price:log3"], 'transform: expected one of "none", "log2"'),
        (["FILE", "--drop", "prise"], "price"),
        (["FILE", "--label", "clicked", "--positive", "yes"], "clicked"),
        (["FILE", "--budgets", "lots"], "budget 'lots' cannot be parsed; write parameters as 30k"),
        (["FILE", "--budgets", "0"], "keeps nothing"),
        (["FILE", "--budgets", "200%"], "more than the whole table"),
        (["FILE", "--budgets", "10XB"], "unknown unit 'XB'"),
        (["FILE", "--budgets", ","], "no budget given"),
        (["FILE", "--budgets", ""], "--budgets is empty"),
        (["FILE", "--label", ""], "--label is empty. Give a value, or leave the option out."),
        (["FILE", "--budgets", "10", "--max-auc-drop", "0.1"], "mutually exclusive"),
        (["FILE", "--max-auc-drop", "7"], "for example 0.001"),
        (["FILE", "--model", "fmm"], "did you mean 'fm'?"),
        (["FILE", "--model", "lr"], "model 'lr' has no embedding to prune. Choose another model (fm, "),
        (["FILE", "--model", "lr", "--method", "mde"], "embedding.first_order = true"),
        (["FILE", "--method", "mde", "--set", "rewind=final"], "method 'mde' has none. Use rewind = \"initial\""),
        (["FILE", "--teachers", "fm,depfm"], "did you mean 'deepfm'?"),
        (["FILE", "--method", "pepp"], "did you mean 'pep'?"),
        (["FILE", "--set", "training.max_epoch=1"], "--set: unknown key 'training.max_epoch'; did you mean"),
        (["FILE", "--set", "training.batch_size=many"], "--set: training.batch_size: expected an integer"),
        (["FILE", "--set", "data.memory_mb=5"], "--set: data.memory_mb is 5; it must be at least 100"),
        (["FILE", "--set", "nonsense"], "not of the form key=value"),
        (["FILE", "--config", "absent.toml"], "absent.toml: no such config file"),
        (["FILE", "-d", "0"], "embedding_dim must be at least 1, got 0"),
        (["movielens-1m", "--data-dir", "absent"], "ratings.dat"),
        (["movielens-1m"], "data_dir"),
    ],
)  # fmt: skip
def test_invalid_options(refused, clicks, tmp_path, fast, monkeypatch, words, expected):
    monkeypatch.chdir(tmp_path)
    words = [str(clicks) if word == "FILE" else word for word in words]
    message = refused("prune", *words, "--out", "out", *([] if "-d" in words else fast))
    assert expected in message
    assert sorted(tmp_path.iterdir()) == [clicks], "something was left behind"


def test_example_setting_in_the_message_is_valid(refused, clicks):
    message = refused("encode", clicks, "--dry-run", "--set", "nonsense")
    example = message.rpartition("e.g. ")[2]
    assert override(RunConfig(), [example]) != RunConfig()


def test_search_rejects_models_that_cannot_be_pruned_before_reading_data(refused, clicks, tmp_path, fast):
    words = ["search", clicks, "--out", tmp_path / "out", *fast]
    assert "has no embedding to prune" in refused(*words, "--model", "lr")
    assert "continues from a search" in refused(*words, "--method", "hash", "--set", "rewind=final")
    assert sorted(tmp_path.iterdir()) == [clicks]


def test_encoded_table_survives_an_impossible_budget(refused, thresher, clicks, tmp_path, fast):
    out = tmp_path / "out"
    assert "is above the" in refused("prune", clicks, "--budgets", "5M", "--out", out, *fast)
    assert [path.name for path in out.iterdir()] == ["encoded"]
    clicks.unlink()
    assert thresher("prune", out / "encoded", "--budgets", "50", "--out", out, *fast).exit_code == 0


def test_unknown_keys_in_a_config_file_name_file_and_line(refused, clicks, tmp_path):
    config = tmp_path / "run.toml"
    config.write_text("seed = 1\n\n[training]\nbatch_sise = 5\n")
    message = refused("prune", clicks, "--config", config, "--out", tmp_path / "out")
    assert f"{config}:4: unknown key 'training.batch_sise'; did you mean 'training.batch_size'?" in message


@pytest.mark.parametrize(
    ("change", "setting", "expected"),
    [
        (
            lambda text: text.replace(",", ";"),
            'data.delimiter=";"',
            "no column 'clicked'; the column names look separated",
        ),
        (lambda text: text.replace(",", "\t"), r'data.delimiter="\t"', "the column names look separated by '\\t'"),
        (lambda text: text.replace("u1,", "ü1,"), "data.encoding=latin-1", "contains a byte that is not UTF-8"),
        (lambda text: text.replace("user_id", "üser"), "data.encoding=latin-1", "the column names are not UTF-8"),
        (lambda text: text.replace("u1,", '"u1"x,'), "data.quote=", "if quotes are ordinary characters"),
    ],
    ids=["semicolon", "tab", "Latin-1", "Latin-1 names", "quotes"],
)
def test_wrong_file_format_names_the_setting_that_reads_it(refused, thresher, clicks, change, setting, expected):
    clicks.write_text(change(clicks.read_text()), encoding="latin-1")
    words = ["encode", clicks, "--label", "clicked", "--dry-run"]
    message = refused(*words)
    assert expected in message
    assert setting.replace("=", " = ").replace("latin-1", '"latin-1"') in message
    assert "--set" in message
    assert thresher(*words, "--set", setting).exit_code == 0


def test_wrong_delimiter_is_reported_without_label_option(refused, clicks):
    clicks.write_text(clicks.read_text().replace(",", ";"))
    assert "which looks separated by ';'; set data.delimiter" in refused("encode", clicks, "--dry-run")


@pytest.mark.parametrize("quote", ["", '"'])
@pytest.mark.parametrize("sign", [";", "|"])
def test_wrong_delimiter_with_commas_in_cells(refused, thresher, tmp_path, sign, quote):
    rows = "".join(f"{row % 2}{sign}{quote}Ulm, {row}{quote}\n" for row in range(9))
    (path := tmp_path / "rows.csv").write_text(f"clicked{sign}city\n{rows}")
    for words in ([], ["--bad-rows", "skip"]):
        message = refused("encode", path, "--dry-run", *words)
        assert f"which looks separated by {sign!r}; set data.delimiter" in message
        assert "mend" not in message
        assert "leave such rows out" not in message
    assert thresher("encode", path, "--dry-run", "--set", f'data.delimiter="{sign}"').exit_code == 0


def test_emoji_codes_in_names_are_not_replaced(refused, thresher, clicks, tmp_path):
    assert "b:smile:" in refused("encode", clicks, "--fields", "b:smile::date", "--dry-run")
    renamed = tmp_path / "renamed.csv"
    renamed.write_text(clicks.read_text().replace("user_id", "b:smile:"))
    assert "  b:smile:  categorical" in thresher("encode", renamed, "--dry-run").stderr


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_unwritable_folder(refused, clicks, tmp_path, fast):
    folder = tmp_path / "locked"
    folder.mkdir(mode=0o500)
    assert "ermission denied" in refused("prune", clicks, "--out", folder / "run", *fast)


def test_output_folder_is_a_file(refused, clicks, tmp_path, fast):
    blocker = tmp_path / "blocker"
    blocker.write_text("")
    for command in ("prune", "search", "encode"):
        message = refused(command, clicks, "--out", blocker / "run", *([] if command == "encode" else fast))
        assert str(blocker) in message
    assert refused("prune", clicks, "--out", blocker, *fast)
    assert blocker.read_text() == ""


def test_other_folders_are_not_changed(refused, thresher, clicks, tmp_path, fast):
    folder = tmp_path / "letters"
    folder.mkdir()
    (folder / "dear.txt").write_text("Dear")
    for words in (["prune", *fast], ["prune", "--force", *fast], ["encode"], ["encode", "--force"]):
        message = refused(words[0], clicks, "--out", folder, *words[1:])
        assert str(folder) in message
        assert [path.name for path in folder.iterdir()] == ["dear.txt"]


@pytest.fixture
def limited(monkeypatch):
    """`with limited(500):` files of this process cannot be larger, as on a full disk."""
    monkeypatch.setattr(sys, "dont_write_bytecode", True)

    @contextmanager
    def limit(max_bytes: int) -> Iterator[None]:
        before = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (max_bytes, before[1]))
        try:
            yield
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, before)

    return limit


@pytest.mark.skipif(sys.platform == "win32", reason="limits the size of files")
@pytest.mark.parametrize("max_bytes", [500, 5_000, 30_000])
def test_full_disk(tmp_path, clicks, fast, refused, limited, max_bytes, finished):
    """One message and no partial file; `finished` has filled the cache of compiled kernels, which is not limited."""
    out = tmp_path / "out"
    with limited(max_bytes):
        message = refused("prune", clicks, "--out", out, "--budgets", "50", *fast)
    assert "too large" in message
    assert str(out) in message
    assert not list(tmp_path.rglob("*.part*"))


def test_control_characters_of_names_do_not_reach_the_terminal(refused, thresher, tmp_path):
    path = tmp_path / "rows.csv"
    path.write_text("clicked,\x1b[31muser\x1b[0m\n" + "0,a\n1,b\n" * 30)
    assert "\x1b" not in refused("encode", path, "--label", "click", "--dry-run")
    shown = thresher("encode", path, "--label", "clicked", "--dry-run")
    assert "\x1b" not in shown.stderr + shown.stdout
    assert r"\x1b[31muser" in shown.stderr


def test_remedies_can_be_pasted_into_a_shell(refused, tmp_path):
    (path := tmp_path / "a b; rm c.csv").write_text("x")
    assert f"thresher encode '{path}' --dry-run" in refused("show", path)
    run = tmp_path / "my run"
    run.mkdir()
    (run / "config.toml").write_text("seed = 1\n")
    assert f"--out '{run}' --resume" in refused("retrain", run)


@pytest.mark.skipif(sys.platform == "win32", reason="limits the size of files")
def test_full_disk_while_predictions_are_written(finished, tmp_path, refused, limited):
    lines = (f"u1,i1,{number}.5\n" for number in range(20_000))  # different prices, which no file format shortens
    (rows := tmp_path / "rows.csv").write_text("user_id,item_id,price\n" + "".join(lines))
    for name in ("out.parquet", "out.csv"):
        with limited(2_000):
            message = refused(
                "predict", finished.out / "bundles" / "50", rows, "--out", tmp_path / name, "--keep", "price"
            )
        assert "cannot write" in message
        assert not list(tmp_path.glob("*out*"))
