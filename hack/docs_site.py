"""Hooks of the site of docs/ (mkdocs.yml, `make docs`): with them its pages read as they do in the repository."""

from __future__ import annotations

import posixpath
import re
from pathlib import Path
from typing import Any

from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File, Files

ROOT = Path(__file__).parent.parent
OUTSIDE = {  # pages of the repository that are not in docs/, and what they are called in the site
    "README.md": "index.md",
    "CONTRIBUTING.md": "contributing.md",
    "CHANGELOG.md": "changelog.md",
    "hack/README.md": "tools.md",
}
DECISIONS = "adr/"

_LINK = re.compile(r"(!?)\[([^\]]*)\]\((?!https?:|mailto:|#)([^)#\s]+)(#[^)\s]*)?\)")
_FETCHED = re.compile(r"<(?:script|img|link|iframe|source)\b[^>]*\b(?:src|href)=[\"']?(?:https?:)?//[^>]*>")


def on_config(config: Any) -> Any:
    """Puts all decisions under the entry of the navigation that names their folder."""
    decisions = sorted(f"{DECISIONS}{page.name}" for page in (ROOT / "docs" / DECISIONS).glob("*.md"))
    for part in config.nav:
        for entries in part.values():
            for entry in entries:
                entry.update({title: decisions for title, page in entry.items() if page == DECISIONS})
    return config


def on_files(files: Files, config: Any) -> Files:
    for source, page in OUTSIDE.items():
        files.append(File.generated(config, page, content=(ROOT / source).read_text(encoding="utf-8")))
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """The page with its links as they are in the site."""
    return in_the_site(markdown, page.file.src_uri)


def in_the_site(markdown: str, page: str) -> str:
    """Markdown of `page` (its name in the site), with links that lead to pages of the site.

    A link to something of the repository that the site does not have, such as a source file, becomes its text. One that
    leads nowhere is left as it is: the strict build then names it.
    """
    sources = {name: source for source, name in OUTSIDE.items()}
    source = sources.get(page, f"docs/{page}")

    def moved(link: re.Match[str]) -> str:
        image, text, target, anchor = link.groups(default="")
        path = posixpath.normpath(posixpath.join(posixpath.dirname(source), target))
        if path in OUTSIDE or (path.startswith("docs/") and (ROOT / path).is_file()):
            name = OUTSIDE.get(path, path.removeprefix("docs/"))
            return f"{image}[{text}]({posixpath.relpath(name, posixpath.dirname(page) or '.')}{anchor})"
        return text if (ROOT / path).exists() else link.group()

    return _LINK.sub(moved, markdown)


def on_post_page(output: str, page: Any, **_: Any) -> str:
    """PluginError where the page would make a browser fetch something from another host."""
    if found := _FETCHED.search(output):
        raise PluginError(f"{page.file.src_uri} is not to be read without internet: {found.group()}")
    return output
