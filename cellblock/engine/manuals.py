# SPDX-License-Identifier: Apache-2.0
"""Makes shell lines that add manual pages to a root whose packages were installed without them.

Packages are installed without manual pages everywhere, so that images share layers. An image that declares
`manuals: true` gets the English pages of all its packages afterwards, out of the same debs.
"""

from __future__ import annotations

import re

# The sections in English. Pages in other languages are in folders of the language: /usr/share/man/de/man1.
_FOLDERS = "/usr/share/man/man[0-9]*"

_PAGE = r"/usr/share/man/man[0-9][^/]*/."
"""What the path of a page begins with, as grep and Python read it."""

NAMES = f"grep -l '^{_PAGE}' /var/lib/dpkg/info/*.list | sed 's|.*/||; s|\\.list$||'"
"""Prints the packages that have pages, one a line; dpkg's lists name pages that it was told to leave out."""


def has_pages(listing: str) -> bool:
    """Whether a package has pages. `listing` is its file /var/lib/dpkg/info/PACKAGE.list."""
    return re.search(f"^{_PAGE}", listing, re.MULTILINE) is not None


def unpack(folder: str) -> list[str]:
    """Statements that unpack the pages of all debs in `folder`, each of which has some."""
    return [
        # A file, not a pipe: the status of what stands before a pipe is lost.
        f"for deb in {folder}/*.deb; do \\\n"
        '      dpkg-deb --fsys-tarfile "$deb" > /tmp/manuals.tar || exit; \\\n'
        "      tar -xf /tmp/manuals.tar -C / --no-same-owner --no-overwrite-dir --keep-directory-symlink \\\n"
        f"        --wildcards '.{_FOLDERS}' || exit; \\\n"
        "    done",
        "rm -f /tmp/manuals.tar",
        # A link to the page of an alternative is made only when the page is there (update-alternatives(1)).
        "update-alternatives --get-selections | while read -r name mode rest; do \\\n"
        '      if [ "$mode" = auto ] && update-alternatives --query "$name" | grep -q /man/; then \\\n'
        '        update-alternatives --quiet --auto "$name" 2>/dev/null || exit; fi; \\\n'
        "    done",
    ]
