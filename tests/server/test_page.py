"""The page at `/` in a real browser: Debian's Chromium, driven by Playwright."""

import shutil

import pytest

CHROMIUM = shutil.which("chromium")
FLAGS = ["--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
         "--disable-component-update", "--disable-sync"]  # fmt: skip

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def browser():
    api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    if CHROMIUM is None:
        pytest.skip("Chromium is not installed (apt-get install chromium)")
    with api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        yield browser
        browser.close()


@pytest.fixture
def page(browser, client):
    page = browser.new_page(viewport={"width": 1440, "height": 900})
    problems = []
    page.on("pageerror", lambda error: problems.append(str(error)))
    page.on("console", lambda message: problems.append(message.text) if message.type == "error" else None)
    page.goto(f"http://127.0.0.1:{client.port}/")
    page.wait_for_selector("#inputs input")
    yield page
    page.close()
    assert [text for text in problems if "422" not in text] == []


def test_the_form_shows_what_the_server_predicts(page, client, row):
    assert page.locator("#inputs label span").all_inner_texts() == list(row)
    assert page.locator("#input-0").input_value() == "Köln"  # the example
    page.fill("#input-0", "Atlantis")
    page.fill("#input-3", "drama, action")
    page.fill("#input-4", "")
    page.click("button[type=submit]")
    page.wait_for_selector("#probability")
    example = client.get("/schema")["example"]
    expected = client.post("/predict", {**example, "city": "Atlantis", "genres": ["drama", "action"]})[1]["probability"]
    assert page.inner_text("#probability") == f"{100 * expected:.2f} %"
    rows = page.locator("#contributions tbody tr").all_inner_texts()
    assert [text for text in rows if "city" in text and "unknown" in text and "Atlantis" in text]
    assert "1 value is unknown" in page.inner_text("#unknown")


def test_a_bad_value_is_marked(page):
    page.fill("#input-4", "cheap")
    page.press("#input-4", "Enter")
    assert "'cheap' in row 0 is not a number" in page.inner_text("[role=alert]")
    assert "invalid" in (page.get_attribute("#input-4", "class") or "")
    page.click("#example")
    page.press("#input-4", "Enter")
    page.wait_for_selector("#probability")
    assert page.locator(".invalid").count() == 0


def test_another_bundle(page):
    assert "deepfm" in page.inner_text("#card")
    page.select_option("#bundle", "attention")
    page.wait_for_selector("#card dd:text-is('autoint')")
    page.press("#input-0", "Enter")
    page.wait_for_selector("#probability")


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [1440, 390])
def test_nothing_is_cut_off(browser, client, width, scheme):
    page = browser.new_page(viewport={"width": width, "height": 800}, color_scheme=scheme)
    for path in ("/", "/docs"):
        page.goto(f"http://127.0.0.1:{client.port}{path}", wait_until="networkidle")
        if path == "/":
            page.press("#input-0", "Enter")
            page.wait_for_selector("#probability")
        assert page.evaluate("document.documentElement.scrollWidth") <= width
    page.close()
