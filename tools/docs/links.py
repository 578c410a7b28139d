"""Links of pages to files outside docs/ lead to the repository, as they do on its web page."""

import posixpath
import re

REPOSITORY = "https://github.com/fairlead/fairlead/blob/main/"
LINK = re.compile(r"(\]\()([^)\s#:]+)(#[^)]*)?(\))")


def on_page_markdown(markdown, page, config, files):
    here = posixpath.dirname(posixpath.join("docs", page.file.src_uri))

    def rewrite(match):
        path = posixpath.normpath(posixpath.join(here, match[2]))
        inside = path.startswith("docs/") and files.get_file_from_path(path.removeprefix("docs/"))
        if inside and not match[2].endswith("/"):
            return match[0]
        return match[1] + REPOSITORY + path + (match[3] or "") + match[4]

    return LINK.sub(rewrite, markdown)
