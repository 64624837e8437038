# SPDX-License-Identifier: Apache-2.0
"""The documentation as a site: pages that are made from the program, and those of docs/, by mkdocs.

`site.build_site` makes it; mkdocs.yml lists the pages; `hooks` adds what is generated.
"""
