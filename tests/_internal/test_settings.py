import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar, Literal

import numpy as np
import pytest
from hypothesis import given, strategies as st

from thresher._internal.settings import (
    config_from_mapping,
    config_to_mapping,
    format_document,
    load_toml,
    override,
    save_toml,
    to_toml,
    validate_config,
)
from thresher.data.config import DataConfig, SplitConfig
from thresher.errors import ConfigError


@dataclass(frozen=True, kw_only=True)
class Animal:
    config_tag: ClassVar[str] = "kind"
    legs: int = 4

    @classmethod
    def config_variants(cls) -> Mapping[str, type["Animal"]]:
        return {"cat": Cat, "bird": Bird}


@dataclass(frozen=True, kw_only=True)
class Cat(Animal):
    lives: int = 9

    def __post_init__(self) -> None:
        if self.lives < 0:
            raise ConfigError(f"lives is {self.lives}; it must not be negative")


@dataclass(frozen=True, kw_only=True)
class Bird(Animal):
    legs: int = 2
    wingspan: float = 0.3


@dataclass(frozen=True)
class Amount:
    number: int

    @classmethod
    def from_config_text(cls, text: str) -> "Amount":
        if not text.endswith("k"):
            raise ConfigError(f"{text!r} is not an amount; write it as 30k")
        return cls(int(text[:-1]) * 1000)

    def __str__(self) -> str:
        return f"{self.number // 1000}k"


@dataclass(frozen=True, kw_only=True)
class Training:
    learning_rate: float = 1e-3
    epochs: int = 10
    patience: int | None = 3
    shuffle: bool = True
    rewind: Literal["initial", "random", "final"] = "initial"


@dataclass(frozen=True, kw_only=True)
class Column:
    name: str
    min_count: int = 0


@dataclass(frozen=True, kw_only=True)
class Run:
    seed: int = 0
    out: Path | None = None
    note: str = ""
    amounts: tuple[Amount, ...] = (Amount(30_000),)
    widths: tuple[int, float] = (1, 0.5)
    limit: int | str = 5
    training: Training = Training(epochs=42)
    animal: Animal = field(default_factory=Cat)
    columns: tuple[Column, ...] = ()
    labels: Mapping[str, float] = field(default_factory=dict)


def parse_run(text: str) -> Run:
    return config_from_mapping(Run, tomllib.loads(text))


def test_an_empty_mapping_gives_the_defaults():
    assert config_from_mapping(Run, {}) == Run()


def test_toml_becomes_nested_dataclasses(tmp_path):
    path = tmp_path / "run.toml"
    path.write_text(
        """
        seed = 7
        out = "runs/x"
        amounts = ["50k", "6k"]
        widths = [3, 1]
        limit = "all"
        [training]
        learning_rate = 1
        [animal]
        kind = "bird"
        wingspan = 1.5
        [[columns]]
        name = "user"
        [[columns]]
        name = "zip code"
        min_count = 3
        [labels]
        click = 1.0
        """
    )
    run = load_toml(Run, path)
    assert run == Run(
        seed=7,
        out=Path("runs/x"),
        amounts=(Amount(50_000), Amount(6_000)),
        widths=(3, 1.0),
        limit="all",
        training=Training(learning_rate=1.0, epochs=42),  # epochs: the default of Run.training, not of Training
        animal=Bird(wingspan=1.5),
        columns=(Column(name="user"), Column(name="zip code", min_count=3)),
        labels={"click": 1.0},
    )
    assert type(run.training.learning_rate) is float
    assert type(run.widths[1]) is float


def test_a_table_without_tag_keeps_the_default_variant():
    assert parse_run("[animal]\nlives = 3").animal == Cat(lives=3)


def test_another_variant_uses_its_own_defaults():
    assert parse_run("[animal]\nkind = 'bird'").animal == Bird(legs=2)


def test_a_tagged_base_class_can_be_the_top_level():
    assert config_from_mapping(Animal, {"kind": "bird", "wingspan": 2}) == Bird(wingspan=2.0)
    assert config_from_mapping(Cat, {"lives": 1}) == Cat(lives=1)
    with pytest.raises(ConfigError, match=r"missing key 'kind', expected one of \"cat\", \"bird\""):
        config_from_mapping(Animal, {"wingspan": 2})
    with pytest.raises(ConfigError, match=r"kind: expected one of \"cat\""):
        config_from_mapping(Cat, {"kind": "bird"})


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("sed = 1", "unknown key 'sed'; did you mean 'seed'?"),
        ("[training]\nepoch = 1", "unknown key 'training.epoch'; did you mean 'training.epochs'?"),
        ("[training]\nxyz = 1", "unknown key 'training.xyz'; known here: learning_rate, epochs, patience"),
        ("seed = true", "seed: expected an integer, got true (a boolean)"),
        ("seed = 1.0", "seed: expected an integer, got 1.0 (a number)"),
        ("seed = 'a'", 'seed: expected an integer, got "a" (a string)'),
        ("seed = [1]", "seed: expected an integer, got [1] (an array)"),
        ("note = 1", "note: expected a string, got 1 (an integer)"),
        ("out = 1", "out: expected a path (a string), got 1 (an integer)"),
        ("limit = 0.5", "limit: expected an integer or a string, got 0.5 (a number)"),
        ("training = 3", "training: expected a table, got 3 (an integer)"),
        ("labels = 3", "labels: expected a table, got 3 (an integer)"),
        ("labels.a = 'x'", 'labels.a: expected a number, got "x" (a string)'),
        ("columns = ['a']", 'columns[0]: expected a table, got "a" (a string)'),
        ("[[columns]]\nmin_count = 1", "missing key 'columns[0].name', expected a string"),
        ("widths = [1]", "widths: expected an array of 2, got 1 values"),
        ("widths = 1", "widths: expected an array whose items are an integer / a number, got 1 (an integer)"),
        ("training.patience = 'x'", 'training.patience: expected an integer, got "x" (a string)'),
        ("training.shuffle = 1", "training.shuffle: expected true or false, got 1 (an integer)"),
        (
            "training.rewind = 'initia'",
            'training.rewind: expected one of "initial", "random", "final", got "initia" (a string); '
            "did you mean 'initial'?",
        ),
        (
            "animal.kind = 'bat'",
            'animal.kind: expected one of "cat", "bird", got "bat" (a string); did you mean \'cat\'?',
        ),
        ("animal.kind = 1", "animal.kind: expected one of"),
        ("animal.kind = 'bird'\nanimal.lives = 1", "unknown key 'animal.lives'"),
        ("animal.lives = -1", "[animal] lives is -1; it must not be negative"),
        ("amounts = ['30k', 'many']", "amounts[1]: 'many' is not an amount; write it as 30k"),
        ("amounts = [30]", "amounts[0]: expected a string that reads as a Amount, got 30 (an integer)"),
    ],
)
def test_errors_name_key_expectation_and_value(text, message):
    with pytest.raises(ConfigError) as caught:
        parse_run(text)
    assert str(caught.value).startswith(f"config: {message}")


def test_file_errors_name_file_and_line(tmp_path):
    path = tmp_path / "run.toml"
    for text, place in [
        ("seed = 1\n\n[training]\nepoch = 1\n", f"{path}:4: unknown key 'training.epoch'"),
        ("seed = 1\ntraining.epochs = 'x'\n", f"{path}:2: training.epochs: expected an integer"),
        ("[[columns]]\nname = 'a'\n[animal]\nlives = -1\n", f"{path}:3: [animal] lives is -1"),
        ("seed = \n", f"{path}: not valid TOML: Invalid value (at line 1"),
    ]:
        path.write_text(text)
        with pytest.raises(ConfigError) as caught:
            load_toml(Run, path)
        assert str(caught.value).startswith(place)
    with pytest.raises(ConfigError, match="no such config file"):
        load_toml(Run, tmp_path / "absent.toml")
    path.write_bytes(b"note = '\xff'")
    with pytest.raises(ConfigError, match="cannot be read as a UTF-8 text file"):
        load_toml(Run, path)


def test_none_is_written_as_absent_key_or_as_the_word_none():
    assert "out" not in config_to_mapping(Run())
    run = Run(training=Training(patience=None))
    assert config_to_mapping(run)["training"]["patience"] == "none"
    assert parse_run(to_toml(run)) == run


def test_a_mapping_field_replaces_its_default():
    @dataclass(frozen=True, kw_only=True)
    class Weights:
        shares: Mapping[str, float] = field(default_factory=lambda: {"a": 1.0})

    assert config_from_mapping(Weights, {"shares": {"b": 2}}).shares == {"b": 2.0}
    assert override(Weights(), ["shares.b=2"]).shares == {"a": 1.0, "b": 2.0}


def test_an_unregistered_variant_cannot_be_written():
    @dataclass(frozen=True, kw_only=True)
    class Dog(Animal):
        pass

    with pytest.raises(ConfigError, match="is not registered"):
        to_toml(Run(animal=Dog()))


def test_an_unsupported_field_type_raises_type_error():
    @dataclass(frozen=True, kw_only=True)
    class Odd:
        items: set[int] = frozenset()  # type: ignore[assignment]

    with pytest.raises(TypeError, match="not supported"):
        config_from_mapping(Odd, {"items": [1]})


def test_overrides_are_converted_by_the_type_of_the_field():
    run = override(
        Run(),
        [
            "seed=3",
            "note=12",
            "out=runs/a b",
            "amounts=50k, 6k",
            "widths=[2, 3]",
            "limit=all",
            "training.learning_rate=1e-2",
            "training.patience=none",
            "training.shuffle=false",
            "training.rewind=final",
            "labels.click=0.5",
            "columns=[{name='a'}, {name='b', min_count=2}]",
        ],
    )
    assert run == Run(
        seed=3,
        note="12",
        out=Path("runs/a b"),
        amounts=(Amount(50_000), Amount(6_000)),
        widths=(2, 3.0),
        limit="all",
        training=Training(learning_rate=0.01, epochs=42, patience=None, shuffle=False, rewind="final"),
        labels={"click": 0.5},
        columns=(Column(name="a"), Column(name="b", min_count=2)),
    )
    assert override(run, ["amounts="]).amounts == ()
    assert override(run, ["note='quoted = text'"]).note == "quoted = text"
    assert override(run, ["labels.other=1"]).labels == {"click": 0.5, "other": 1.0}
    assert override(run, ["training={epochs=2}"]).training.epochs == 2


def test_overriding_a_tag_keeps_changed_settings_that_both_variants_have():
    run = Run(animal=Cat(legs=3, lives=2))
    assert override(run, ["animal.wingspan=1", "animal.kind=bird"]).animal == Bird(legs=3, wingspan=1.0)
    assert override(Run(), ["animal.kind=bird"]).animal == Bird(legs=2)


@pytest.mark.parametrize(
    ("assignment", "message"),
    [
        ("seed", "'seed' is not of the form key=value"),
        ("=1", "'=1' is not of the form key=value"),
        ("a..b=1", "'a..b=1' is not of the form key=value"),
        ("sead=1", "unknown key 'sead'; did you mean 'seed'?"),
        ("seed=x", 'seed: expected an integer, got "x" (a string)'),
        ("seed.x=1", "seed: expected an integer, got"),
        ("training=x", 'training: expected a table, got "x" (a string)'),
        ("amounts=30k,many", "amounts[1]: 'many' is not an amount"),
    ],
)
def test_invalid_overrides_are_rejected(assignment, message):
    with pytest.raises(ConfigError) as caught:
        override(Run(), [assignment])
    assert str(caught.value).startswith(f"override: {message}")


def test_a_key_cannot_be_set_both_as_table_and_as_value():
    with pytest.raises(ConfigError, match="both as a value and as a table"):
        override(Run(), ["training.epochs=1", "training=3"])
    with pytest.raises(ConfigError, match="both as a value and as a table"):
        override(Run(), ["training=3", "training.epochs=1"])


def test_saving_is_atomic(tmp_path):
    path = tmp_path / "run.toml"
    save_toml(Run(seed=1), path)
    with pytest.raises(ConfigError):
        save_toml(Run(seed=2, animal=Animal()), path)
    assert load_toml(Run, path) == Run(seed=1)
    assert [file.name for file in tmp_path.iterdir()] == ["run.toml"]


texts = st.text(alphabet=st.characters(exclude_categories=("Cs",))).filter(lambda text: text.lower() != "none")
floats = st.floats(allow_nan=False)
runs = st.builds(
    Run,
    seed=st.integers(),
    out=st.none() | texts.filter(lambda text: text.lower() != "none").map(Path),
    note=texts,
    amounts=st.lists(st.integers(0, 999).map(lambda n: Amount(1000 * n))).map(tuple),
    widths=st.tuples(st.integers(), floats),
    limit=st.integers() | texts,
    training=st.builds(
        Training,
        learning_rate=floats,
        patience=st.none() | st.integers(),
        shuffle=st.booleans(),
        rewind=st.sampled_from(["initial", "random", "final"]),
    ),
    animal=st.builds(Cat, legs=st.integers(), lives=st.integers(0)) | st.builds(Bird, wingspan=floats),
    columns=st.lists(st.builds(Column, name=texts, min_count=st.integers())).map(tuple),
    labels=st.dictionaries(texts, floats),
)


@given(runs)
def test_round_trip_through_toml_is_exact(run):
    assert config_from_mapping(Run, tomllib.loads(to_toml(run))) == run


plain = st.recursive(
    st.booleans() | st.integers() | floats | texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=12,
)


@given(st.dictionaries(texts, plain, max_size=4))
def test_any_plain_document_round_trips_through_toml(document):
    assert tomllib.loads(format_document(document)) == document


def test_settings_must_be_a_mapping():
    with pytest.raises(ConfigError, match="expected a table of settings, found list"):
        config_from_mapping(Training, ["learning_rate"])


def test_numpy_numbers_and_sets_are_converted():
    split = SplitConfig(shares=tuple(np.array([0.8, 0.1, 0.1])))
    data = DataConfig(memory_mb=np.int64(200), drop={"b", "a"}, split=split)
    plain = DataConfig(memory_mb=200, drop=("a", "b"))
    assert validate_config(data) == plain
    assert to_toml(data) == to_toml(plain)


def test_the_text_none_is_rejected_where_it_would_mean_none():
    with pytest.raises(ConfigError, match="label is 'None', which means None in settings"):
        validate_config(DataConfig(label="None"))
