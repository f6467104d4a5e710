#!/usr/bin/env bash
# Makes a small cloud image of Debian's own packages: systemd, cloud-init and an SSH server, as the images of distributions have them.
# No loop device and no mount: mmdebstrap fills a folder, mke2fs -d makes the file system of it, dd puts GRUB in its place.
#
#   build_cloud_guest.sh DIRECTORY    makes DIRECTORY/cloud.qcow2 (boots by itself, BIOS), and vmlinuz and initrd.img (to boot a kernel directly)
#
# As root.  Needs: mmdebstrap qemu-utils e2fsprogs grub-pc-bin grub-common fdisk.  Packages come from where this machine has its own from.
set -euo pipefail
OUT=$(realpath -m "${1:?DIRECTORY}")
HERE=$(dirname "$(realpath "$0")")
WORK=$(mktemp -d)
trap 'rm -rf "$WORK"' EXIT
mkdir -p "$OUT"
SOURCES=$(grep -lE '^(URIs: .*/debian$|deb .*/debian )' /etc/apt/sources.list /etc/apt/sources.list.d/*.sources /etc/apt/sources.list.d/*.list 2>/dev/null | head -1 || true)
: "${SOURCES:?no file of this machine names an archive of Debian}"
SUITE=$(. /etc/os-release && echo "$VERSION_CODENAME")
R=$WORK/root

INCLUDE=linux-image-cloud-amd64,initramfs-tools,systemd-sysv,udev,dbus,iproute2,iputils-ping,netbase,ca-certificates
INCLUDE=$INCLUDE,cloud-init,openssh-server,sudo,procps,kmod,wget,qemu-guest-agent
# The initramfs has what a disk of ours needs and no more; no manual pages, no translations: the image is copied with every boot.
mmdebstrap --quiet --variant=minbase --mode=root --include="$INCLUDE" \
  --dpkgopt='path-exclude=/usr/share/man/*' --dpkgopt='path-exclude=/usr/share/locale/*' --dpkgopt='path-exclude=/usr/share/doc/*' \
  --setup-hook='mkdir -p "$1/etc/initramfs-tools/conf.d"; echo MODULES=list >"$1/etc/initramfs-tools/conf.d/small"; printf "%s\n" virtio_pci virtio_blk virtio_scsi virtio_net ext4 sd_mod sr_mod ata_piix >"$1/etc/initramfs-tools/modules"' \
  "$SUITE" "$R" "$SOURCES"

echo 'LABEL=cloud / ext4 defaults 0 1' >"$R/etc/fstab"
: >"$R/etc/machine-id"
rm -f "$R"/etc/ssh/ssh_host_* "$R/etc/hostname" "$R/etc/resolv.conf"
rm -rf "$R"/var/cache/apt/* "$R"/var/lib/apt/lists/*
# Where cloud-init looks: the config drive, then the metadata service.  What it did is said on the console, for whoever watches.
cat >"$R/etc/cloud/cloud.cfg.d/90_sources.cfg" <<'S'
datasource_list: [ConfigDrive, OpenStack, None]
output: {all: '| tee -a /var/log/cloud-init-output.log'}
final_message: "GUEST: cloud-init finished from $datasource after $uptime s"
apt: {preserve_sources_list: true}
S
for unit in apt-daily.timer apt-daily-upgrade.timer e2scrub_all.timer fstrim.timer dpkg-db-backup.timer e2scrub_reap.service \
    systemd-networkd-wait-online.service; do
  ln -sf /dev/null "$R/etc/systemd/system/$unit"
done
mkdir -p "$R/etc/systemd/system/multi-user.target.wants"
ln -sf /lib/systemd/system/systemd-networkd.service "$R/etc/systemd/system/multi-user.target.wants/systemd-networkd.service"
cat >"$R/usr/local/sbin/say-network" <<'S'
#!/bin/sh
echo "GUEST: addresses $(hostname -I)" >/dev/console
echo "GUEST: host name $(hostname)" >/dev/console
S
chmod 755 "$R/usr/local/sbin/say-network"

cp "$R"/boot/vmlinuz-* "$OUT/vmlinuz"
cp "$R"/boot/initrd.img-* "$OUT/initrd.img"
chmod 644 "$OUT/vmlinuz" "$OUT/initrd.img"
mkdir -p "$R/boot/grub"
cat >"$R/boot/grub/grub.cfg" <<S
serial --unit=0 --speed=115200
terminal_input serial
terminal_output serial
linux16 /$(cd "$R" && ls -d boot/vmlinuz-*) root=LABEL=cloud console=tty0 console=ttyS0 no_timer_check panic=5
initrd16 /$(cd "$R" && ls -d boot/initrd.img-*)
boot
S
. "$HERE/boot_disk.sh"
boot_disk "$R" "${CLOUD_DISK_MIB:-1400}" cloud "$OUT/cloud.qcow2" -c
