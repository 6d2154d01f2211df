"""The table of row budgets in the documentation is made from the committed result."""

import row_budgets
from thresher._internal.storage.files import read_json


def test_the_page_has_the_table_of_the_result():
    [run] = read_json(row_budgets.RESULT)["runs"]
    page = (row_budgets.RESULT.parents[2] / "docs" / "tickets_and_budgets.md").read_text()
    assert row_budgets.table_of(run) in page
    dense = run["dense"]
    assert f"{dense['storage_bytes']:,} bytes and AUC {dense['test_auc']:.4f}" in page
