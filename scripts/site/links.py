"""Hooks of the site: the project's README is its first page, and links to sources go to the repository."""

import pathlib
import posixpath
import re

from mkdocs.structure.files import File

TOP = pathlib.Path(__file__).resolve().parents[2]
LINK = re.compile(r"(\]\()([^)\s]+)(\))")


def on_files(files, config):
    files.append(File.generated(config, "index.md", content=(TOP / "README.md").read_text()))
    return files


def on_page_markdown(markdown, page, config, files):
    first = page.file.src_uri == "index.md"  # lies above docs in the repository

    def link(m):
        path, _, heading = m[2].partition("#")
        if "://" in path or not path:
            return m[0]
        at = posixpath.normpath(posixpath.join("." if first else posixpath.join("docs", posixpath.dirname(page.file.src_uri)), path))
        if at.startswith("docs/") and files.get_file_from_path(at[len("docs/"):]):
            to = at[len("docs/"):] if first else path
        elif at == "README.md":
            to = posixpath.relpath("index.md", posixpath.dirname(page.file.src_uri) or ".")
        else:
            to = f"{config['repo_url']}/blob/main/{at}"
        return m[1] + to + ("#" + heading if heading else "") + m[3]

    parts = re.split(r"(?ms)(^```.*?^```)", markdown)
    return "".join(p if i % 2 else LINK.sub(link, p) for i, p in enumerate(parts))
