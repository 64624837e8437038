# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=sh
# mpi_image.sh IMAGE PROGRAMS [MPI-PROGRAM]: an image of Open MPI as the jail has it, python and a few programs; those of
# the folder PROGRAMS are in its /opt. Only what is needed, so that making it takes a second.
set -eu
top=$(mktemp -d)
cd "$top"
for folder in bin lib lib64 sbin; do mkdir -p usr/$folder; ln -s usr/$folder $folder; done
mkdir -p etc tmp proc sys dev run opt
take() {
    for path; do
        if [ -e "$path" ]; then echo "$path"; ldd "$path" 2>/dev/null | grep -o '/[^ ]*' || true; fi
    done | sort -u | while read -r file; do
        mkdir -p ".$(dirname "$file")"
        cp -Ln "$file" ".$file" 2>/dev/null || true
    done
}
for name in sh cat date env id ls rm sleep stat touch true python3; do take "/usr/bin/$name"; done
take /usr/lib/*/openmpi/lib/openmpi*/*.so /usr/lib/*/pmix2/lib/libpmix.so.2 /usr/lib/*/pmix2/lib/pmix/*.so
cp -r --parents /usr/share/openmpi /usr/lib/python3.* .
cp "$2"/* opt/
if [ $# = 3 ]; then cp "$3" opt/sum; chmod 0755 opt/sum; take "$top/opt/sum"; rm -rf ".$top"; fi
printf '#!/bin/sh\nexec "$@"\n' > etc/rc
mksquashfs . "$1" -all-root -noappend -quiet -no-progress -comp zstd -Xcompression-level 1
chmod 0644 "$1"
rm -rf "$top"
