"""What pyproject.toml cannot say: the links, which follow from one address, `repository-code` in CITATION.cff."""

import re
from pathlib import Path

ROOT = Path(__file__).parent
PAPERS = {
    "Position Coupling": "https://arxiv.org/abs/2405.20671",
    "Explicitly Encoding Structural Symmetry": "https://arxiv.org/abs/2406.01895",
}
# The text of a link may hold a picture, as a badge does.
LINK = re.compile(r"(?P<mark>!?)\[(?P<text>(?:[^\[\]]|!\[[^\]]*\]\([^)]*\))*)\]\((?P<target>[^)\s]+)\)")


def cited(field: str) -> str | None:
    """A field of CITATION.cff, None if it is not there."""
    found = re.search(rf"^{field}: *[\"']?([^\s\"']+)", (ROOT / "CITATION.cff").read_text(encoding="utf-8"), re.MULTILINE)
    return found[1] if found else None


def describe(readme: str, code: str | None, version: str | None) -> str:
    """README for a page elsewhere, such as PyPI's, where no path leads to a file of the repository.

    Args:
        code: address of the repository. Without one, pictures are left out, and of links to files only the text stays.
        version: whose tag the links lead to.
    """

    def lead(link: re.Match[str]) -> str:
        if re.match("https:|#", link["target"]):
            return link[0]
        if code is None:
            return "" if link["mark"] else link["text"]
        view = "raw" if link["mark"] else "blob"
        return f"{link['mark']}[{link['text']}]({code}/{view}/v{version}/{link['target']})"

    text = LINK.sub(lead, readme)
    return text if code is None else re.sub(r"git clone REPOSITORY (.*\S) *# REPOSITORY.*", rf"git clone {code} \1", text)


if __name__ == "__main__":
    from setuptools import setup

    code = cited("repository-code")
    setup(
        script_name=Path(__file__).name,  # which the builder leaves out of the package, whose folder is this one
        long_description=describe((ROOT / "README.md").read_text(encoding="utf-8"), code, cited("version")),
        long_description_content_type="text/markdown",
        project_urls=PAPERS | ({"Repository": code} if code else {}),
    )
