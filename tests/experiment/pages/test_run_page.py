"""The page of a run and of a comparison, also in a real browser."""

import json
import re
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from thresher.data.config import DataConfig, SyntheticConfig
from thresher.embeddings.pep import PepConfig
from thresher.experiment.compare import compare
from thresher.experiment.comparison.compare_config import CompareConfig
from thresher.experiment.config import RunConfig
from thresher.experiment.pages.compare_page import write_comparison_page
from thresher.experiment.pages.warnings import run_warnings
from thresher.experiment.prune import prune
from thresher.models.model_registry import FLOOR
from thresher.report.frontier import Frontier, FrontierPoint
from thresher.search.schedule import SearchConfig
from thresher.training.fit import TrainingConfig
from thresher.training.optimizers import OptimizerConfig

FAST = OptimizerConfig(learning_rate=1e-2)
DATA = DataConfig(
    source="synthetic",
    synthetic=SyntheticConfig(num_rows=2_000, num_signal_fields=2, num_noise_fields=2, field_size=30, seed=2),
)
TRAINING = TrainingConfig(max_epochs=3, batch_size=256, patience=2, optimizer=FAST)
SEARCH = SearchConfig(warmup_epochs=1, plan_epochs=2, clock_steps=5, max_epochs=2, optimizer=FAST)


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    config = RunConfig(
        data=DATA, embedding=PepConfig(embedding_dim=8), search=SEARCH, training=TRAINING, budgets=("30%", "10%"),
        teacher_share=0.0, max_auc_drop=None,
    )  # fmt: skip
    return prune(config, out=tmp_path_factory.mktemp("runs") / "run")


@pytest.fixture(scope="module")
def compared(tmp_path_factory):
    config = CompareConfig(
        data=DATA, methods=("pep", "uniform"), budgets=("50%", "25%"), embedding_dim=8, seeds=2, trials=1,
        search=SEARCH, training=TRAINING,
    )  # fmt: skip
    out = tmp_path_factory.mktemp("runs") / "compared"
    return out, compare(config, out=out)


def page_data(page: Path) -> dict:
    html = page.read_text(encoding="utf-8")
    return json.loads(re.search(r'<script type="application/json" id="data">(.*?)</script>', html, re.DOTALL)[1])


def test_the_page_has_every_number_of_the_results(run):
    page = run.run.report / "index.html"
    data, html = page_data(page), page.read_text(encoding="utf-8")
    assert [point["name"] for point in data["points"]] == ["30%", "10%"]
    for point, shown in zip(run.frontier.points, data["points"], strict=True):
        assert shown["test_auc"] == point.test_auc
        assert shown["bundle_bytes"] > shown["storage_bytes"]
        assert f"{point.test_auc:.4f}" in html
        assert f"thresher export {run.run.folder} --budget {point.budget}" in html
    assert data["dense"]["validation_auc"] == run.frontier.dense.validation_auc
    (training,) = data["trainings"]
    assert [curve["stage"] for curve in training["curves"]] == ["dense", "search", "30%", "10%", "no embedding"]
    assert [ticket["num_kept"] for ticket in sorted(training["tickets"], key=lambda t: t["step"])] == [
        point.num_parameters for point in run.frontier.points
    ]
    kept = [record["num_kept"] for record in training["kept"]]
    assert kept == sorted(kept, reverse=True)


def test_tickets_are_marked_in_the_epoch_of_the_search_that_cut_them(run):
    (training,) = page_data(run.run.report / "index.html")["trainings"]
    search = next(curve for curve in training["curves"] if curve["stage"] == "search")
    assert search["best"] is None
    ends = {record["epoch"]: record["step"] for record in training["kept"]}
    steps = {ticket["budget"]: ticket["step"] for ticket in training["tickets"]}
    assert steps.keys() == {"30%", "10%"}
    for ticket in search["tickets"]:
        assert ends.get(ticket["epoch"] - 1, 0) < steps[ticket["budget"]] <= ends[ticket["epoch"]]


@pytest.fixture(scope="module")
def several(tmp_path_factory):
    config = RunConfig(
        data=DATA, embedding=PepConfig(embedding_dim=8), search=SEARCH, training=TRAINING, budgets=("30%", "10%"),
        teacher_share=0.0, seeds=2,
    )  # fmt: skip
    return prune(config, out=tmp_path_factory.mktemp("runs") / "several")


def test_the_page_of_several_seeds_has_means_and_every_seed(several):
    folder = several.run.report
    data, html = page_data(folder / "index.html"), (folder / "index.html").read_text(encoding="utf-8")
    for point, shown in zip(several.frontier.points, data["points"], strict=True):
        single = [own["test_auc"] for own in data["by_seed"] if own["name"] == point.budget]
        assert shown["test_auc"] == point.test_auc == pytest.approx(sum(single) / 2)
        assert f"{point.test_auc:.4f} ± {point.test_auc_sd:.4f}" in html
    assert [training["seed"] for training in data["trainings"]] == [0, 1]
    assert data["trainings"][0]["curves"] != data["trainings"][1]["curves"]
    (link,) = set(re.findall(r'href="(\.\.[^"]+)"', html))
    assert (folder / link).resolve() == (several.run.folder / "seeds" / "1" / "report" / "index.html").resolve()
    assert (folder / link).exists()
    assert "means of 2 seeds" in html


def test_fields_are_also_a_file(run):
    fields = json.loads((run.run.report / "fields.json").read_text(encoding="utf-8"))["fields"]
    assert fields.keys() == {"30%", "10%"}
    for budget, point in zip(fields, run.frontier.points, strict=True):
        assert sum(row["num_parameters"] for row in fields[budget]) == point.num_parameters
    strongest = {row["field"] for row in fields["30%"][:2]}
    assert strongest == {"signal_0", "signal_1"}


def test_a_comparison_has_one_row_per_method(compared):
    out, result = compared
    html = (out / "report" / "index.html").read_text(encoding="utf-8")
    rows = re.search(r'<table class="methods">(.*?)</table>', html, re.DOTALL)[1]
    assert sorted(re.findall(r'data-method="([^"]+)"', rows)) == ["frequent", "pep", "uniform"]
    assert rows.count("±") == sum(1 for point in result.points if point.budget) / 2
    assert len(page_data(out / "report" / "index.html")["points"]) == len(result.points)


def test_a_comparison_names_unmet_budgets_and_models_below_the_floor(compared, tmp_path):
    def page_with(floor_auc: float) -> str:
        points = [replace(point, test_auc=floor_auc) if point.model == FLOOR else point for point in compared[1].points]
        unmet = {("fm", "uniform", "1%"): "the reason"}
        return write_comparison_page(tmp_path, points, unmet=unmet).read_text(encoding="utf-8")

    html = page_with(floor_auc=0.99)
    assert "Budget 1% cannot be met by uniform." in html
    assert "the reason" in html
    assert "fm: no method is better than the model without an embedding (0.9900)" in html
    assert "no method is better" not in page_with(floor_auc=0.1)


def test_warnings_name_the_size_and_the_reason():
    dense = FrontierPoint(
        label="dense", num_parameters=100, storage_bytes=400, validation_auc=0.8, validation_logloss=0.4,
        validation_rare_auc=0.75,
    )  # fmt: skip
    point = replace(
        dense, label="pep", budget="10%", num_parameters=10, validation_auc=0.799, validation_rare_auc=0.74,
        validation_calibration=1.2,
    )  # fmt: skip
    frontier = Frontier(
        points=(point,), dense=dense, metadata={"still_improving": ["10%"], "doubts": "Warning: Noise."}
    )
    warnings = " ".join(run_warnings(frontier))
    for part in (
        "Noise.",
        "still improving: 10%",
        "prediction is 1.20 times",
        "10%: rows with rare",
        "one",
    ):
        assert part in warnings
    assert len(run_warnings(replace(frontier, points=(), metadata={}))) == 1


CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
FLAGS = ["--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking"]
FLAGS += ["--disable-component-update", "--disable-sync"]


@pytest.fixture(scope="module")
def browser():
    sync_api = pytest.importorskip("playwright.sync_api", reason="needs playwright: pip install playwright")
    if CHROMIUM is None:
        pytest.skip("needs Chromium: apt-get install chromium")
    with sync_api.sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        yield started
        started.close()


@pytest.fixture
def opened(browser):
    """Opens a page from disk; at the end, anything in its console and any request fails the test."""
    context, problems = browser.new_context(viewport={"width": 390, "height": 800}), []

    def open_page(path: Path):
        page = context.new_page()
        page.on("console", lambda message: problems.append(message.text))
        page.on("pageerror", lambda error: problems.append(str(error)))
        page.on("request", lambda request: request.url.startswith(("file:", "data:")) or problems.append(request.url))
        page.goto(path.resolve().as_uri())
        return page

    yield open_page
    context.close()
    assert problems == []


def test_run_page_in_a_browser(run, opened):
    page = opened(run.run.report / "index.html")
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    assert page.locator("#frontier svg circle").count() >= 2
    page.select_option("#size", "bundle_bytes")
    page.select_option("#quality", "validation_logloss")
    assert "validation logloss" in page.locator("#frontier").text_content()
    page.fill("#afford", "0.001")
    assert "No size of this run fits" in page.locator("#within-bytes").text_content()
    page.fill("#afford", "100000")
    assert "thresher export" in page.locator("#within-bytes pre").text_content()
    page.fill("#lose", "0.5")
    assert page.locator("#within-drop").text_content().startswith("10%")
    assert page.locator("#field-table tbody tr").count() == 4
    page.locator("#field-table th button", has_text="features kept").click()
    kept = [int(text) for text in page.locator("#field-table tbody td:nth-child(3)").all_text_contents()]
    assert kept == sorted(kept, reverse=True)


def test_a_model_without_an_embedding_above_all_others_is_inside_the_chart(run, opened, tmp_path):
    html = (run.run.report / "index.html").read_text(encoding="utf-8")
    shown, best = page_data(run.run.report / "index.html"), max(point.test_auc for point in run.frontier.points)
    shown["floor"]["test_auc"] = min(1.0, best + 0.2)
    text = re.sub(r'(id="data">).*?(</script>)', lambda m: m[1] + json.dumps(shown) + m[2], html, flags=re.DOTALL)
    (tmp_path / "index.html").write_text(text, encoding="utf-8")
    page = opened(tmp_path / "index.html")
    label = page.locator("#frontier svg text", has_text="no embedding").last.bounding_box()
    assert label["y"] >= page.locator("#frontier svg").last.bounding_box()["y"]


def test_hovering_shows_size_and_every_metric(run, opened):
    page = opened(run.run.report / "index.html")
    page.locator("#frontier").scroll_into_view_if_needed()
    page.locator("#frontier svg circle").last.hover(force=True)
    shown = page.locator("#frontier g[aria-label=tip]").text_content()
    for part in ("parameters", "tables", "bundle", "AUC", "logloss", "calibration", "rare rows"):
        assert part in shown


def test_the_seed_of_the_curves_can_be_chosen(several, opened):
    page = opened(several.run.report / "index.html")
    paths = "#curves svg g[aria-label=line] path"
    first = page.locator(paths).evaluate_all("paths => paths.map(path => path.getAttribute('d'))")
    page.select_option("#seed", "1")
    second = page.locator(paths).evaluate_all("paths => paths.map(path => path.getAttribute('d'))")
    assert len(first) == len(second) == 5
    assert first != second
    page.locator("#single-seeds summary").click()
    assert page.locator("#single-seeds tbody tr").count() == 8
    assert "standard deviation over seeds" in page.locator("#band").text_content()


def test_every_control_is_reached_from_the_keyboard(run, opened):
    page = opened(run.run.report / "index.html")
    assert page.locator("#field-table[tabindex='0'][role=region]").count() == 1  # wider than 390 pixels
    reached = set()
    for _ in range(60):
        page.keyboard.press("Tab")
        reached.add(page.evaluate("document.activeElement.id"))
    assert reached >= {"quality", "size", "log", "zero", "afford", "unit", "of", "lose", "field-budget", "curve"}


def test_comparison_page_in_a_browser(compared, opened):
    page = opened(compared[0] / "report" / "index.html")
    lines = page.locator("#frontier svg g[aria-label=line] path")
    assert lines.count() == 3
    page.locator("#legend input[value=uniform]").uncheck()
    assert lines.count() == 2
    page.fill("#filter", "pep")
    assert page.locator("table.methods tbody tr:visible").count() == 1
