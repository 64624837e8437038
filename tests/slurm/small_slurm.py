# SPDX-License-Identifier: Apache-2.0
"""Makes a tarball that builds like Slurm's within a second: configure, Makefiles, programs and plugins."""

from __future__ import annotations

import hashlib
import io
import tarfile
from pathlib import Path

META = """  Meta:		1
  Name:		slurm
  Version:	{version}
  API_CURRENT:	42
  API_AGE:	0
"""

# configure that finds what it is told to, but for what is in the file `absent`.
CONFIGURE = """#!/bin/sh
set -eu
touch config.h config.status
lib=/usr/lib plugins=
for argument; do
  case $argument in
    --libdir=*) lib=${argument#*=} ;;
    --with-*) name=${argument#--with-}; name=${name%%=*}
      case $name in
        munge) echo 'S["WITH_MUNGE_TRUE"]=""' >> config.status ;;
        mysql_config) echo "#define HAVE_MYSQL 1" >> config.h ;;
        json|yaml|lua|jwt|pmix|hwloc|nvml|http-parser)
          name=$(echo "$name" | tr a-z- A-Z_)
          grep -qx "$name" absent || echo "#define HAVE_$name 1" >> config.h ;;
      esac ;;
  esac
done
echo "#define HAVE_NUMA 1" >> config.h
printf '%s\\n' "$@" > arguments
if [ -e fail ]; then echo "configure: error: no acceptable C compiler found" >&2; exit 77; fi
sed "s|@LIB@|$lib|" src/Makefile.in > src/Makefile
"""

HEADERS = """install-pkgincludeHEADERS:
	mkdir -p $(DESTDIR)/usr/include/slurm
	touch $(DESTDIR)/usr/include/slurm/slurm.h
"""

MAKEFILE = """LIB = @LIB@
PLUGINS = $(DESTDIR)$(LIB)/slurm
all: program plugin.so libslurm.so.42.0.0
program: program.c libslurm.so.42.0.0
	gcc $(CFLAGS) -o $@ program.c libslurm.so.42.0.0
plugin.so: plugin.c
	gcc $(CFLAGS) -shared -fPIC -o $@ plugin.c
libslurm.so.42.0.0: plugin.c
	gcc $(CFLAGS) -shared -fPIC -Wl,-soname,libslurm.so.42 -o $@ plugin.c
install: all
	mkdir -p $(DESTDIR)/usr/bin $(DESTDIR)/usr/sbin $(PLUGINS)
	for name in srun sinfo; do cp program $(DESTDIR)/usr/bin/$$name; done
	for name in ctld d stepd dbd restd; do cp program $(DESTDIR)/usr/sbin/slurm$$name; done
	for name in auth_munge auth_jwt openapi_slurmctld new_kind; do cp plugin.so $(PLUGINS)/$$name.so; done
	touch $(PLUGINS)/auth_jwt.la
	cp libslurm.so.42.0.0 $(DESTDIR)$(LIB)
	ln -s libslurm.so.42.0.0 $(DESTDIR)$(LIB)/libslurm.so.42
	ln -s libslurm.so.42.0.0 $(DESTDIR)$(LIB)/libslurm.so
"""

ADOPT = """FOLDER = $(DESTDIR)/usr/lib/$$(dpkg-architecture -qDEB_HOST_MULTIARCH)/security
install:
	mkdir -p $(FOLDER)
	cp ../../src/plugin.so $(FOLDER)/pam_slurm_adopt.so
"""


def small_slurm(
    path: Path, version: str = "25.05.3", *, absent: tuple[str, ...] = (), fails: bool = False
) -> str:
    """Write the tarball to `path`; returns its SHA-256. configure does not find what is `absent`."""
    files = {
        "META": META.format(version=version),
        "configure": CONFIGURE,
        "Makefile": HEADERS,
        "src/Makefile.in": MAKEFILE,
        "src/program.c": "int slurm_api(void);\nint main(void) { return slurm_api(); }\n",
        "src/plugin.c": "int slurm_api(void) { return 0; }\n",
        "absent": "".join(f"{name}\n" for name in absent),
        "contribs/pam_slurm_adopt/Makefile": ADOPT,
        "contribs/slurm_completion_help/slurm_completion.sh": "# completes\n",
        "COPYING": "GPL\n",
        "DISCLAIMER": "none\n",
        "LICENSE.OpenSSL": "OpenSSL\n",
        **({"fail": ""} if fails else {}),
    }
    with tarfile.open(path, "w") as archive:
        for name, text in files.items():
            member = tarfile.TarInfo(f"slurm-{version}/{name}")
            member.size, member.mode, member.mtime = len(text.encode()), 0o755, 1_700_000_000
            archive.addfile(member, io.BytesIO(text.encode()))
    return hashlib.sha256(path.read_bytes()).hexdigest()
