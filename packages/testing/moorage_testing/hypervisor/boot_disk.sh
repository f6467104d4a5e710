# For the builders of guests: a file system as a disk that boots by BIOS, without root, loop device or mount.
# mke2fs -d fills the file system, and dd puts GRUB in its place; /boot/grub/grub.cfg is the file system's own.
# It loads kernels by their 16-bit protocol (linux16): entered in 32 bits, an emulated processor takes 1.5 s more to unpack one.
#
# What an emulated processor reads by its BIOS costs processor time, so blocks are large, and clusters are compressed only where asked
# for: SeaBIOS reads half a cluster at a time, and QEMU unpacks it again for each.
#
#   boot_disk TREE MIB LABEL QCOW2 [-c]
#
# Needs: qemu-utils e2fsprogs grub-pc-bin grub-common fdisk; WORK is a directory for what is made on the way.

boot_disk() {
  local tree=$1 mib=$2 label=$3 out=$4 compressed=${5:-} modules=/usr/lib/grub/i386-pc
  truncate -s "${mib}M" "$WORK/disk.raw"
  printf 'label: dos\nstart=2048, type=83, bootable\n' | /sbin/sfdisk -q "$WORK/disk.raw"
  /sbin/mke2fs -q -t ext4 -b 4096 -O ^metadata_csum,^64bit,^orphan_file -m 0 -L "$label" -d "$tree" \
     -E offset=$((2048*512)),root_owner=0:0 "$WORK/disk.raw" $(( (mib-1)*256 ))
  cat >"$WORK/early.cfg" <<'S'
set root=hd0,msdos1
set prefix=(hd0,msdos1)/boot/grub
configfile (hd0,msdos1)/boot/grub/grub.cfg
S
  grub-mkimage -O i386-pc -c "$WORK/early.cfg" -p /boot/grub -o "$WORK/core.img" \
     biosdisk part_msdos ext2 linux16 normal configfile serial terminal
  [ "$(stat -c %s "$WORK/core.img")" -lt $((2047*512)) ]
  dd if="$modules/boot.img" of="$WORK/disk.raw" bs=1 count=440 conv=notrunc status=none
  dd if="$WORK/core.img" of="$WORK/disk.raw" bs=512 seek=1 conv=notrunc status=none
  # shellcheck disable=SC2086
  qemu-img convert -f raw -O qcow2 $compressed "$WORK/disk.raw" "$out.coming"
  mv "$out.coming" "$out"
}
