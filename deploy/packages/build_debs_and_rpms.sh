#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# usage: build_debs_and_rpms.sh SOURCES OUT - makes Debian packages and RPMs of the project's C and Python, in the image packages-toolchain.
#
# SOURCES holds native, spank_jail, enroot, pyxis, cellblock and packages (this folder). For the Slurm whose headers are in
# SOURCES/slurm-headers/slurm, where that is there (`build.py packages --slurm-from`), else for that of libslurm-dev.
# PLUGIN_DIR: where that Slurm looks for plugins; by default where Debian's does.
set -eu
sources=$1
out=$2
templates=$sources/packages
unset MAKEFLAGS
umask 022

headers=/usr/include
depends=
slurm_cflags=
if [ -d "$sources/slurm-headers" ]; then
	headers=$sources/slurm-headers
	slurm_cflags=-I$headers
fi
# 0x180b05 is 24.11.5: slurm_version.h.
number=$(sed -n 's/^#define[[:space:]]*SLURM_VERSION_NUMBER[[:space:]]*\(0x[0-9a-f]*\).*/\1/p' "$headers/slurm/slurm_version.h")
if [ -z "$number" ]; then
	echo "build_debs_and_rpms.sh: $headers/slurm/slurm_version.h has no SLURM_VERSION_NUMBER; give the headers that Slurm installs" >&2
	exit 1
fi
major=$((number >> 16 & 255))
minor=$((number >> 8 & 255))
release=$(printf '%d.%02d' "$major" "$minor")
slurm=$(printf '%d%02d' "$major" "$minor")
multiarch=$(dpkg-architecture -qDEB_HOST_MULTIARCH)
if [ -z "$slurm_cflags" ]; then
	# Both slurmd and the client commands need this package of the same release.
	depends=$(printf 'slurm-wlm-basic-plugins (>= %s), slurm-wlm-basic-plugins (<< %d.%02d~)' "$release" "$major" "$((minor + 1))")
fi
plugins=${PLUGIN_DIR:-/usr/lib/$multiarch/slurm-wlm}
version=$(sed -n 's/^__version__ = "\(.*\)"$/\1/p' "$sources/cellblock/__init__.py")
# shellcheck disable=SC1091
. /etc/os-release
tools=yes
case ${VERSION_CODENAME} in
# As images/jail-init says: python3-urllib3 and python3-typer of these are too old.
bookworm | jammy) tools= ;;
esac

# A Debian that is not released yet has no VERSION_ID.
render() {
	sed -e "s|@SLURM@|$slurm|g" -e "s|@RELEASE@|$release|g" -e "s|@DEPENDS@|$depends|g" -e "s|@VERSION@|$version|g" \
		-e "s|@REVISION@|1~$ID${VERSION_ID:-$VERSION_CODENAME}|g" -e "s|@SUITE@|$VERSION_CODENAME|g" -e "s|@PLUGINS@|${plugins#/}|g" \
		-e "s|@MULTIARCH@|$multiarch|g" "$1"
}

rm -rf "$sources/debian"
cp -R "$templates/debian" "$sources/debian"
for template in "$templates"/debian/*.in; do
	name=$(basename "$template" .in)
	render "$template" >"$sources/debian/$(echo "$name" | sed "s/@SLURM@/$slurm/")"
	rm "$sources/debian/$name.in"
done
if [ -z "$tools" ]; then
	# The last stanza.
	sed -i '/^Package: cellblock-tools$/,$d' "$sources/debian/control"
	rm "$sources/debian"/cellblock-tools.*
fi

cd "$sources"
SOURCE_DATE_EPOCH=$(dpkg-parsechangelog -STimestamp)
export SOURCE_DATE_EPOCH SLURM_CFLAGS="$slurm_cflags" PLUGIN_DIR="$plugins" WITH_TOOLS="$tools"
# The buildinfo says when and where by the clock and the environment, in which two builds of one source differ: neither is of use here.
DEB_BUILD_OPTIONS="noautodbgsym nocheck parallel=$(nproc)"
export DEB_BUILD_OPTIONS
dpkg-buildpackage --build=binary --no-check-builddeps --no-sign --jobs="$(nproc)" \
	--buildinfo-option=--always-include-path \
	--hook-changes="sed -i 's/^Build-Date: .*/Build-Date: $(LC_ALL=C date -u -R -d "@$SOURCE_DATE_EPOCH")/; s/parallel=[0-9]*/parallel=1/' ../*.buildinfo"
mkdir -p "$out/debian" "$out/rpm"
mv ../*.deb ../*.changes ../*.buildinfo "$out/debian/"

# What the packages hold, once more as RPMs: for machines that have this C library, or a newer one.
spec=$sources/cellblock.spec
render "$templates/rpm/cellblock.spec.in" >"$spec"
rpmbuild -bb --nodeps --quiet --define "_topdir $sources/rpm" --define "staged $sources/debian/tmp" --define "tools ${tools:-no}" \
	--define "clamp_mtime_to_source_date_epoch 1" --define "use_source_date_epoch_as_buildtime 1" \
	--define "_buildhost cellblock" --define "_build_id_links none" "$spec"
mv "$sources"/rpm/RPMS/*/*.rpm "$out/rpm/"
