"""Every link between our pages leads somewhere, and every page is linked."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
DOCS = sorted((ROOT / "docs").rglob("*.md"))
PAGES = [ROOT / "README.md", ROOT / "CHANGELOG.md", ROOT / "CONTRIBUTING.md", *DOCS]

LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
NAMED_FILE = re.compile(r"`([\w.-]+(?:/[\w.-]+)+\.(?:py|md|toml|txt|yml))`")


def prose(page: Path) -> str:
    """A page without its code blocks."""
    return re.sub(r"^```.*?^```$", "", page.read_text(), flags=re.S | re.M)


def links(page: Path) -> list[str]:
    """The targets of a page's links to our own files."""
    return [target for target in LINK.findall(prose(page)) if "://" not in target]


def anchors(page: Path) -> set[str]:
    """What GitHub makes of a page's headings."""
    headings = re.findall(r"^#+ (.+)$", prose(page), re.M)
    return {re.sub(r"[^\w -]", "", h.lower()).replace(" ", "-") for h in headings}


@pytest.mark.parametrize("page", PAGES, ids=lambda p: str(p.relative_to(ROOT)))
def test_links_resolve(page: Path) -> None:
    """To a file that is there, and to a heading in it."""
    for link in links(page):
        target, _, anchor = link.partition("#")
        file = (page.parent / target).resolve() if target else page
        assert file.exists(), f"{link} leads nowhere"
        assert not anchor or anchor in anchors(file), f"{link} leads to no heading"


@pytest.mark.parametrize("page", PAGES, ids=lambda p: str(p.relative_to(ROOT)))
def test_files_that_are_named_exist(page: Path) -> None:
    """A path in a sentence outlives a rename only by being looked at."""
    for named in NAMED_FILE.findall(prose(page)):
        assert (ROOT / named).exists(), f"{named} is named and not there"


def test_every_page_is_linked_from_the_readme() -> None:
    """A page that nobody finds need not be written."""
    readme = ROOT / "README.md"
    linked = {(ROOT / link.partition("#")[0]).resolve() for link in links(readme)}
    assert set(DOCS) <= linked
