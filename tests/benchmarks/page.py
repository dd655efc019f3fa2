"""Take pictures of the page for README.md, in Chromium driven by playwright.

python tests/benchmarks/page.py addition "653+49" 1 hub_cards/results/page.png
python tests/benchmarks/page.py outputs/addition-scratchpad "512+880+300" 9 hub_cards/results/page-phone.png --phone
"""

import argparse
import shutil
from pathlib import Path

from playwright.sync_api import sync_playwright

from longhand.hub_cards.checkpoints.zoo import locate
from longhand.hub_cards.space.app import launch

DESKTOP = {"viewport": {"width": 640, "height": 100}}
PHONE = {"viewport": {"width": 360, "height": 100}, "color_scheme": "dark"}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("model", help="folder, Hub id or name of the zoo")
    parser.add_argument("question")
    parser.add_argument("token", type=int, help="token of the response, from 0 on, that is passed over")
    parser.add_argument("file", type=Path)
    parser.add_argument("--phone", action="store_true", help="a phone's width, in dark mode")
    options = parser.parse_args()
    _, address, _ = launch([locate(options.model)], prevent_thread_lock=True, quiet=True)
    with sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        page = browser.new_page(**(PHONE if options.phone else DESKTOP))
        page.goto(address)
        page.wait_for_selector(".lh-grid")
        field = page.get_by_label("Question")
        if field.input_value() != options.question:
            field.fill(options.question)
            field.press("Enter")
        page.wait_for_function(
            "text => document.querySelector('.lh-asked').textContent === text", arg=f"{options.question} ="
        )
        # Gradio's veil over what is being computed fades.
        page.wait_for_timeout(1000)
        page.locator("button.lh-token").nth(options.token).focus()
        page.wait_for_selector(".lh-panel table")
        page.add_style_tag(content="footer { display: none !important }")
        page.screenshot(path=options.file, full_page=True)
        browser.close()


if __name__ == "__main__":
    main()
