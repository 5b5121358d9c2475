#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""check_links.py <site> <list>: every link inside the site leads to a file and an anchor that are there.

Links that leave it are written to <list>, one a line with the pages that have it, and not fetched: a site of others that
is down is no mistake of ours.
"""

import html.parser
import pathlib
import sys
import urllib.parse


class Page(html.parser.HTMLParser):
    def __init__(self, text):
        super().__init__()
        self.anchors, self.links = set(), set()
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        for name, value in attributes:
            if name == "id" or (name == "name" and tag == "a"):
                self.anchors.add(value)
            elif name in ("href", "src") and value:
                self.links.add(value)


def problems(site, pages, external):
    for path, page in sorted(pages.items()):
        for link in sorted(page.links):
            parts = urllib.parse.urlsplit(link)
            if parts.scheme in ("data", "mailto", "javascript"):
                continue
            if parts.scheme or parts.netloc:
                external.setdefault(link, []).append(path.relative_to(site).as_posix())
                continue
            target = (path.parent / urllib.parse.unquote(parts.path)).resolve() if parts.path else path
            if target.is_dir():
                target = target / "index.html"
            where = f"{path.relative_to(site)}: {link}"
            if not target.is_file():
                yield f"{where}: no such file"
            elif not target.is_relative_to(site):
                yield f"{where}: leaves the site"
            elif parts.fragment and target in pages:
                if urllib.parse.unquote(parts.fragment) not in pages[target].anchors:
                    yield f"{where}: no such anchor"


def main():
    site = pathlib.Path(sys.argv[1]).resolve()
    pages = {p: Page(p.read_text(encoding="utf-8")) for p in site.rglob("*.html")}
    external = {}
    found = list(problems(site, pages, external))
    lines = [f"{link}  {' '.join(where)}" for link, where in sorted(external.items())]
    pathlib.Path(sys.argv[2]).write_text("\n".join(lines) + "\n", encoding="utf-8")
    print("\n".join(found) if found else f"{len(pages)} pages, every link inside them leads somewhere")
    sys.exit(1 if found else 0)


if __name__ == "__main__":
    main()
