"""Adds to `setup.cfg` what only code can compute: the description and the links of the sdist."""

from __future__ import annotations

import configparser
import os
import re
import shutil
from pathlib import Path

from setuptools import setup
from setuptools.command.sdist import sdist

ROOT = Path(__file__).parent
LINKS = (
    ".src/eagerly",
    *(f"eagerly/{path.name}" for path in (ROOT / "eagerly").iterdir() if path.is_symlink()),
)
NOTE = "> The pages and files that this text mentions are in the source distribution.\n\n"


def description(readme: str, source: str) -> str:
    """Returns the README for pages outside the repository, where relative links lead nowhere.

    Args:
        readme: Text of the README.
        source: Address of the repository. Relative links and figures become absolute. Without an
            address, links become text, and figures are omitted with their captions.
    """
    relative = r"(?!https?://|#)([^)\s]+)"
    if source:
        readme = re.sub(rf"(!\[[^\]]*\]\(){relative}", rf"\1{source}/raw/HEAD/\2", readme)
        readme = re.sub(rf"(\]\(){relative}", rf"\1{source}/blob/HEAD/\2", readme)
        return re.sub(rf'((?:src|srcset)="){relative}', rf"\1{source}/raw/HEAD/\2", readme)
    readme = re.sub(r"<picture>.*?</picture>\n\n\*[^*]+\*\n\n", "", readme, flags=re.S)
    readme = re.sub(rf"!\[[^\]]*\]\({relative}\)\n\n", "", readme)
    readme = re.sub(rf"\[([^\]]*)\]\({relative}\)", r"\1", readme)
    return readme.replace("\n\n", f"\n\n{NOTE}", 1)


def source_address() -> str:
    """Returns the address of `Source` in `project_urls` of `setup.cfg`, empty if it has none."""
    config = configparser.ConfigParser()
    config.read(ROOT / "setup.cfg", encoding="utf-8")
    urls = config.get("metadata", "project_urls", fallback="")
    found = re.search(r"^Source *= *(\S+)", urls, re.M)
    return found[1].rstrip("/") if found else ""


class SourceDistribution(sdist):
    """Stores symbolic links, which setuptools would replace with copies of their folders."""

    def make_release_tree(self, base_dir: str, files: list[str]) -> None:
        """Creates the tree of the sdist, which equals the one of the repository."""
        super().make_release_tree(base_dir, files)
        for link in LINKS:
            place = Path(base_dir, link)
            shutil.rmtree(place, ignore_errors=True)
            place.symlink_to(os.readlink(ROOT / link))


if __name__ == "__main__":
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    setup(
        cmdclass={"sdist": SourceDistribution},
        long_description=description(readme, source_address()),
    )
