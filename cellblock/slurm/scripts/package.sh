#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Splits /build/stage into packages and writes them, with a flat apt archive's Packages and Release, to /out.
#
# /in/packages/NN-NAME holds for each package, in the order in which they take files:
#   control  its fields, with @shlibs@ and @size@ to fill in
#   files    patterns, one a line; {lib} and {plugins} stand for folders
# SOURCE_DATE_EPOCH dates all that is written.
set -eu
umask 022

lib=usr/lib/$(dpkg-architecture -qDEB_HOST_MULTIARCH)
plugins=$lib/slurm
stage=/build/stage
tree=/build/packages
find $stage -name '*.la' -delete
# For debuggers of the MPI of the last century.
rm -rf "$stage/$plugins/src"
mkdir -p $tree /build/debian
cd /build

# move PACKAGE PATTERN: what is left of it in the stage becomes the package's.
move() {
  cd $stage
  for path in $2; do
    if [ -e "$path" ] || [ -L "$path" ]; then
      mkdir -p "$tree/$1/$(dirname "$path")"
      mv "$path" "$tree/$1/$path"
      rmdir -p --ignore-fail-on-non-empty "$(dirname "$path")" 2> /dev/null || :
    fi
  done
  cd /build
}

for folder in /in/packages/*/; do
  name=$(basename "$folder")
  name=${name#*-}
  while read -r pattern; do
    move "$name" "$(echo "$pattern" | sed "s|{lib}|$lib|; s|{plugins}|$plugins|")"
  done < "$folder/files"
done

# dpkg-shlibdeps wants a source package around it.
printf 'Source: slurm\n\nPackage: slurm\nArchitecture: any\n' > debian/control

# programs PACKAGE: programs and libraries in it, those that the linker knows.
programs() {
  find "$tree/$1" -type f | sort | while read -r file; do
    [ "$(head -c 4 "$file" | tail -c 3)" != ELF ] || echo "$file"
  done
}

for folder in /in/packages/*/; do
  name=$(basename "$folder")
  name=${name#*-}
  root=$tree/$name
  # A Slurm without MySQL has no file for that package.
  [ -d "$root" ] || continue
  shlibs=
  elf=$(programs "$name")
  if [ -n "$elf" ]; then
    # shellcheck disable=SC2086 # names of Slurm's own files, which hold no space
    strip --strip-unneeded --remove-section=.comment $elf
    # Slurm's own libraries are in no package that dpkg knows: found, and passed over.
    # shellcheck disable=SC2046,SC2086
    shlibs=$(dpkg-shlibdeps -O --ignore-missing-info \
      $(for other in "$tree"/*; do echo "-l$other/$lib" "-l$other/$plugins"; done) \
      $elf 2> shlibdeps.log) || { cat shlibdeps.log >&2; exit 1; }
    shlibs=${shlibs#shlibs:Depends=}
  fi
  # Opened by name while running, so that no linker tells.
  if [ -n "$(find "$root" -name 'mpi_pmix*.so')" ]; then
    library=$(readlink -f "/$lib/pmix2/lib/libpmix.so.2")
    owner=$(dpkg -S "$library" | cut -d: -f1)
    shlibs="$shlibs${shlibs:+, }$owner"
  fi
  mkdir -p "$root/usr/share/doc/$name" "$root/DEBIAN"
  cat /build/slurm/COPYING /build/slurm/DISCLAIMER /build/slurm/LICENSE.OpenSSL > "$root/usr/share/doc/$name/copyright"
  find "$root" -type d -exec chmod 755 {} +
  [ ! -d "$root/$lib" ] || [ -z "$(find "$root/$lib" -maxdepth 1 -name '*.so.*')" ] \
    || echo 'activate-noawait ldconfig' > "$root/DEBIAN/triggers"
  (cd "$root" && find . -path ./DEBIAN -prune -o -type f -printf '%P\n' | sort | xargs md5sum > DEBIAN/md5sums)
  size=$(du -sk --apparent-size --exclude=DEBIAN "$root" | cut -f1)
  sed "s|@shlibs@|$shlibs|; s|@size@|$size|; s|^Depends: , |Depends: |; s|^\(Depends: .*\), *$|\1|; /^Depends: *$/d" \
    "$folder/control" > "$root/DEBIAN/control"
  # Its times are no later than SOURCE_DATE_EPOCH, and its files root's (dpkg-deb(1)).
  dpkg-deb --root-owner-group -Zzstd -z3 --build "$root" /out > /dev/null
done

cd /out
dpkg-scanpackages --multiversion . > Packages 2> /dev/null
{
  echo "Origin: Cellblock"
  echo "Label: Slurm"
  echo "Suite: slurm"
  echo "Architectures: $(dpkg --print-architecture)"
  echo "Date: $(date --utc --date="@$SOURCE_DATE_EPOCH" '+%a, %d %b %Y %H:%M:%S UTC')"
  echo "SHA256:"
  echo " $(sha256sum Packages | cut -d' ' -f1) $(stat -c %s Packages) Packages"
} > Release
