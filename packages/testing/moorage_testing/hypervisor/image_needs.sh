#!/usr/bin/env bash
# Says in one message what `make image` lacks here, with the names of Debian's packages; its status is 2 then.
#
#   image_needs.sh [--packages]     --packages: only the names of all that it needs
set -euo pipefail
NEEDS="qemu-img:qemu-utils busybox:busybox-static cpio:cpio mke2fs:e2fsprogs grub-mkimage:grub-common sfdisk:fdisk mcopy:mtools
  qemu-ga:qemu-guest-agent objdump:binutils"
BIOS=${GRUB_OF_BIOS:-/usr/lib/grub/i386-pc/boot.img}
PATH=$PATH:/sbin:/usr/sbin
lacking=()
for each in $NEEDS "$BIOS:grub-pc-bin"; do
  if [ "${1:-}" = --packages ]; then
    echo "${each#*:}"
  elif ! command -v "${each%:*}" >/dev/null && [ ! -f "${each%:*}" ]; then
    lacking+=("${each#*:}")
  fi
done
[ "${1:-}" != --packages ] || exit 0
if [ ${#lacking[@]} -gt 0 ]; then
  echo "make image lacks programs: apt-get install ${lacking[*]}" >&2
  exit 2
fi
if ! command -v apt-get >/dev/null || ! apt-cache show linux-image-cloud-amd64 >/dev/null 2>&1; then
  echo "make image fetches packages of Debian, and knows no linux-image-cloud-amd64: it needs Debian on x86_64, and apt-get update" >&2
  exit 2
fi
