import io

from rich.console import Console

from thresher._internal.text import format_bytes
from thresher.report.frontier import Frontier, FrontierPoint, plain_table, rich_table

DENSE = FrontierPoint(
    label="dense",
    num_parameters=264_704,
    storage_bytes=1_058_816,
    validation_auc=0.8462,
    validation_logloss=0.38,
    test_auc=0.8503,
    test_logloss=0.3702,
    test_calibration=1.0,
)
SMALL = FrontierPoint(
    label="pep", budget="6500", num_parameters=6_500, storage_bytes=35_900, validation_auc=0.839, validation_logloss=0.4
)
LARGE = FrontierPoint(
    label="pep",
    budget="2%",
    num_parameters=50_000,
    storage_bytes=236_000,
    validation_auc=0.84651,
    validation_logloss=0.4,
)
FRONTIER = Frontier(points=(SMALL, LARGE), dense=DENSE)


def test_plain_table_is_the_dense_row_then_large_to_small():
    assert plain_table(FRONTIER).splitlines() == [
        "                                share  validation    test     test    cali-",
        "budget  parameters    bytes  of dense         AUC     AUC  logloss  bration",
        "------  ----------  -------  --------  ----------  ------  -------  -------",
        "dense      264,704  1.06 MB     100 %      0.8462  0.8503   0.3702    1.000",
        "2%          50,000   236 KB      19 %      0.8465       –        –        –",
        "6500         6,500  35.9 KB     2.5 %      0.8390       –        –        –",
    ]


def test_rich_table_fits_eighty_columns_whole():
    out = io.StringIO()
    Console(file=out, width=80).print(rich_table(FRONTIER, title="demo"))
    text = out.getvalue()
    assert "…" not in text
    for cell in ("264,704", "1.06 MB", "0.8503", "35.9 KB", "bration"):
        assert cell in text


def test_several_methods_get_a_column_of_their_names():
    uniform = FrontierPoint(
        label="uniform", num_parameters=4_136, storage_bytes=16_544, validation_auc=0.82, validation_logloss=0.4
    )
    lines = plain_table(Frontier(points=(uniform, SMALL))).splitlines()
    assert lines[1].startswith("method")
    assert [line.split()[0] for line in lines[3:]] == ["pep", "uniform"]


def test_a_frontier_without_points_or_dense_still_prints():
    assert plain_table(Frontier(points=())).splitlines()[1].startswith("budget")


def test_bytes_have_three_digits():
    assert [format_bytes(n) for n in (0, 1, 1000, 99_950, 12_345_678)] == ["0 B", "1 B", "1.00 KB", "100 KB", "12.3 MB"]
