#!/bin/sh
# mmdebstrap hook: downloads packages that the guest is made of but that are not to be installed in it.
# Installing the kernel would pull in initramfs-tools and udev and build an initrd that nobody uses.
# Usage: fetch.sh DIRECTORY KERNEL-METAPACKAGE PACKAGE...
# Environment: MMDEBSTRAP_APT_CONFIG, which makes apt see the repositories of the new root.
set -eu
directory=$1
metapackage=$2
shift 2
export APT_CONFIG="$MMDEBSTRAP_APT_CONFIG"
kernel=$(apt-cache depends --important "$metapackage" | sed -n 's/^ *Depends: \(linux-image-[0-9].*\)$/\1/p' | head -n 1)
if [ -z "$kernel" ]; then
    echo "fetch.sh: $metapackage depends on no linux-image package" >&2
    exit 1
fi
cd "$directory"
apt-get -q download "$kernel" "$@"
