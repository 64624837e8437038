# SPDX-License-Identifier: Apache-2.0
"""Makes the documentation's site by mkdocs: the pages of docs/, and pages made from the program.

`site.build_site` makes it; mkdocs.yml lists the pages; `hooks` adds what is generated.
"""
