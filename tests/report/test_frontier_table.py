import io
from dataclasses import replace

from rich.console import Console

from thresher._internal.text import format_bytes
from thresher.report.frontier import Frontier, FrontierPoint
from thresher.report.tables import plain_table, rich_table

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
FLOOR = FrontierPoint(
    label="no embedding",
    num_parameters=0,
    storage_bytes=0,
    bundle_bytes=70_123,
    validation_auc=0.7911,
    validation_logloss=0.43,
    test_auc=0.7913,
)
FRONTIER = Frontier(points=(SMALL, LARGE), dense=DENSE)


def test_plain_table_is_floor_and_dense_then_large_to_small():
    large = replace(LARGE, bundle_bytes=310_400, still_improving=True)
    assert plain_table(Frontier(points=(SMALL, large), dense=DENSE, floor=FLOOR)).splitlines() == [
        "                                                    vali-                   cali-",
        "                para-     share    table   bundle  dation    test     test   bra-",
        "budget         meters  of dense    bytes    bytes     AUC     AUC  logloss   tion",
        "------------  -------  --------  -------  -------  ------  ------  -------  -----",
        "no embedding        0       0 %      0 B  70.1 KB  0.7911  0.7913        –      –",
        "dense         264,704     100 %  1.06 MB        –  0.8462  0.8503   0.3702  1.000",
        "2%†            50,000      19 %   236 KB   310 KB  0.8465       –        –      –",
        "6500            6,500     2.5 %  35.9 KB        –  0.8390       –        –      –",
    ]


def test_rich_table_fits_eighty_columns_whole():
    out = io.StringIO()
    with_floor = replace(FRONTIER, floor=FLOOR)
    Console(file=out, width=80).print(rich_table(with_floor, title="demo"))
    text = out.getvalue()
    assert "…" not in text
    for cell in ("264,704", "1.06 MB", "0.8503", "35.9 KB", "tion"):
        assert cell in text


def test_several_methods_get_a_column_of_their_names():
    uniform = FrontierPoint(
        label="uniform", num_parameters=4_136, storage_bytes=16_544, validation_auc=0.82, validation_logloss=0.4
    )
    lines = plain_table(Frontier(points=(uniform, SMALL))).splitlines()
    assert lines[2].startswith("method")
    assert [line.split()[0] for line in lines[4:]] == ["pep", "uniform"]


def test_a_frontier_without_points_or_dense_still_prints():
    assert plain_table(Frontier(points=())).splitlines()[2].startswith("budget")


def test_bytes_have_three_digits():
    assert [format_bytes(n) for n in (0, 1, 1000, 99_950, 12_345_678)] == ["0 B", "1 B", "1.00 KB", "100 KB", "12.3 MB"]
