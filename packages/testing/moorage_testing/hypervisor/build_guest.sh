#!/usr/bin/env bash
# Makes the guest of the hypervisor tests from packages of Debian only: no root, no loop device, no mount.
# mke2fs -d fills the file system, and dd puts GRUB in its place.
#
#   build_guest.sh DIRECTORY     makes DIRECTORY/vmlinuz and initrd.img (to boot a kernel directly) and guest.qcow2 (boots by itself, BIOS)
#
# Needs: qemu-utils busybox-static cpio e2fsprogs grub-pc-bin grub-common fdisk binutils; the kernel (linux-image-cloud-amd64) is fetched and
# only unpacked.  The guest says each thing that it does on its console, in a line that begins with GUEST.
set -euo pipefail
OUT=$(realpath -m "${1:?DIRECTORY}")
HERE=$(dirname "$(realpath "$0")")
WORK=$(mktemp -d)
trap 'rm -rf "$WORK"' EXIT
mkdir -p "$OUT"

# ---- kernel --------------------------------------------------------------
cd "$WORK"
IMG=$(apt-cache depends linux-image-cloud-amd64 | awk '/Depends: linux-image/{print $2; exit}')
apt-get download "$IMG" >/dev/null 2>&1
dpkg-deb -x "$IMG"_*.deb k
KVER=$(ls k/lib/modules)
cp "k/boot/vmlinuz-$KVER" "$OUT/vmlinuz"
chmod 644 "$OUT/vmlinuz"

# ---- initramfs -----------------------------------------------------------
R=$WORK/root
mkdir -p "$R"/{bin,dev,proc,sys,etc,tmp,run,mnt/disk,mnt/config,lib/modules,www}
cp "$(command -v busybox)" "$R/bin/busybox"
ln -s bin/busybox "$R/init.busybox"
# modules, dependencies first
MODS="virtio_ring virtio virtio_pci_legacy_dev virtio_pci_modern_dev virtio_pci
      failover net_failover virtio_net virtio_blk virtio_balloon virtio_console
      rng-core virtio-rng button evdev cdrom isofs nls_base fat vfat nls_cp437 nls_ascii
      scsi_common scsi_mod virtio_scsi sd_mod sr_mod libata ata_piix"
: >"$R/etc/modules"
for m in $MODS; do
  f=$(find "k/lib/modules/$KVER" -name "$m.ko" -print -quit)
  [ -n "$f" ] || continue                      # built in
  strip --strip-debug -o "$R/lib/modules/$m.ko" "$f" 2>/dev/null || cp "$f" "$R/lib/modules/"
  echo "$m" >>"$R/etc/modules"
done
# a static glibc must not try to load NSS plug-ins: name only the built-in ones
printf '%s\n' 'passwd: files' 'group: files' 'services: files' 'protocols: files' 'hosts: files dns' >"$R/etc/nsswitch.conf"
printf 'http 80/tcp\n' >"$R/etc/services"
printf 'tcp 6 TCP\nudp 17 UDP\n' >"$R/etc/protocols"
printf '127.0.0.1 localhost\n' >"$R/etc/hosts"
printf 'root:x:0:0:root:/:/bin/sh\n' >"$R/etc/passwd"
cat >"$R/etc/udhcpc.sh" <<'S'
#!/bin/busybox sh
case "$1" in
deconfig) ip link set "$interface" up ;;
bound|renew)
  [ -n "$mtu" ] && ip link set "$interface" mtu "$mtu"
  ip addr flush dev "$interface"
  ip addr add "$ip/$mask" dev "$interface"
  for r in $router; do ip route add default via "$r" dev "$interface" 2>/dev/null; done
  set -- $staticroutes
  while [ $# -ge 2 ]; do
    if [ "$2" = 0.0.0.0 ]; then ip route add "$1" dev "$interface" 2>/dev/null
    else ip route add "$1" via "$2" dev "$interface" 2>/dev/null; fi
    shift 2
  done
  : >/etc/resolv.conf; for d in $dns; do echo "nameserver $d" >>/etc/resolv.conf; done
  [ "$1" = renew ] || echo "GUEST: dhcp $interface $ip/$mask" >/dev/console ;;
esac
S
cat >"$R/etc/power.sh" <<'S'
#!/bin/busybox sh
echo "GUEST: power button" >/dev/console
sync; umount /mnt/disk 2>/dev/null || mount -o remount,ro / 2>/dev/null; poweroff -f
S
cat >"$R/init" <<'S'
#!/bin/busybox sh
/bin/busybox --install -s /bin
export PATH=/bin
mount -t proc proc /proc; mount -t sysfs sys /sys; mount -t devtmpfs dev /dev
mkdir -p /dev/pts; mount -t devpts devpts /dev/pts; mount -t tmpfs tmpfs /run
exec </dev/console >/dev/console 2>&1
for m in $(cat /etc/modules); do insmod /lib/modules/$m.ko || echo "GUEST: insmod $m failed"; done
ip link set lo up
echo "GUEST: kernel $(uname -r), $(nproc) cpu, $(awk '/MemTotal/{print $2}' /proc/meminfo) kB, up $(cut -d' ' -f1 /proc/uptime)s"
# root disk: mounted when there, with a boot counter that shows persistence
for d in /dev/vda1 /dev/sda1; do
  [ -b $d ] && mount -t ext4 $d /mnt/disk 2>/dev/null && break
done
if [ -e /mnt/disk/boot ]; then
  n=$(( $(cat /mnt/disk/boots 2>/dev/null || echo 0) + 1 )); echo $n >/mnt/disk/boots; sync
  echo "GUEST: boot number $n"
fi
# a disk with a system of its own (build_login_guest.sh) is run from
if [ -x /mnt/disk/etc/guest.sh ]; then
  for d in proc sys dev run; do mount --move /$d /mnt/disk/$d; done
  exec switch_root /mnt/disk /etc/guest.sh
fi
exec /etc/guest.sh
S
cat >"$R/etc/guest.sh" <<'S'
#!/bin/busybox sh
[ -e /etc/login.sh ] && . /etc/login.sh
acpid -d -c /etc/acpi >/dev/null 2>&1 &
# network: DHCP on every Ethernet NIC, also ones that are plugged in later
nics() {
  for f in $(ls /run/nic.* 2>/dev/null); do i=${f##*.}
    [ -e /sys/class/net/$i ] || { kill $(cat /run/udhcpc.$i.pid) 2>/dev/null; rm -f $f; }
  done
  for i in /sys/class/net/*; do i=${i##*/}
    case $i in lo|sit*) continue;; esac
    [ -e /run/nic.$i ] && continue
    : >/run/nic.$i
    ip link set $i up
    udhcpc -i $i -p /run/udhcpc.$i.pid -s /etc/udhcpc.sh -t 8 -T 1 -A 3 -b -S -O staticroutes -O mtu -x hostname:$(hostname) >/dev/null 2>&1
  done
}
hostname guest
nics
( while sleep 1; do nics; for b in $(ls /sys/block | grep "^[vs]d"); do [ -e /run/blk.$b ] || { : >/run/blk.$b; echo "GUEST: disk $b $(cat /sys/block/$b/size)"; }; done; for f in $(ls /run/blk.* 2>/dev/null); do b=${f##*.}; [ -e /sys/block/$b ] || { rm -f $f; echo "GUEST: disk $b gone"; }; done; done ) &
# metadata: config drive first, then the well-known address
# (no wget -T: that option crashes in this BusyBox build)
for t in 1 2 3; do [ -e /dev/sr0 ] || ! ls /sys/class/scsi_host 2>/dev/null | grep -q . || sleep 0.3; done
for d in /dev/sr0 /dev/vd[a-z] /dev/sd[a-z]; do
  [ -b $d ] || continue
  mount -o ro $d /mnt/config 2>/dev/null || continue
  [ -e /mnt/config/openstack/latest/meta_data.json ] && echo "GUEST: config-drive $d" && break
  umount /mnt/config
done
MD=/mnt/config/openstack/latest
if [ ! -e $MD/meta_data.json ]; then
  MD=/run/md; mkdir -p $MD
  for t in $(seq ${METADATA_TRIES:-3}); do
    timeout 4 wget -q -O $MD/meta_data.json http://169.254.169.254/openstack/latest/meta_data.json && break
    rm -f $MD/meta_data.json; sleep 1
  done
  [ -s $MD/meta_data.json ] && timeout 4 wget -q -O $MD/user_data http://169.254.169.254/openstack/latest/user_data 2>/dev/null
fi
if [ -s $MD/meta_data.json ]; then
  echo "GUEST: metadata $(tr -d '\n' <$MD/meta_data.json)"
  h=$(sed -n 's/.*"hostname": *"\([^"]*\)".*/\1/p' $MD/meta_data.json); [ -n "$h" ] && hostname "${h%%.*}"
else
  echo "GUEST: metadata none"
fi
case "$(head -c 2 $MD/user_data 2>/dev/null)" in '#!') tail -n +2 $MD/user_data >/run/ud; sh /run/ud;; esac
hostname >/www/index.html; [ -e /etc/login.sh ] || httpd -h /www
[ -e /etc/login.sh ] && may_log_in $MD/meta_data.json
echo "GUEST: ready $(hostname) up $(cut -d' ' -f1 /proc/uptime)s"
while :; do setsid cttyhack sh -l; done
S
mkdir -p "$R/etc/acpi/PWRF"
cp "$R/etc/power.sh" "$R/etc/acpi/PWRF/00000080"
chmod 755 "$R/init" "$R/etc/guest.sh" "$R/etc/udhcpc.sh" "$R/etc/power.sh" "$R/etc/acpi/PWRF/00000080"
(cd "$R" && find . | LC_ALL=C sort | cpio --quiet -o -H newc -R 0:0 --reproducible) | gzip -9n >"$OUT/initrd.img"

# ---- disk image ----------------------------------------------------------
B=$WORK/fs
mkdir -p "$B/boot/grub"
cp "$OUT/vmlinuz" "$OUT/initrd.img" "$B/boot/"
cat >"$B/boot/grub/grub.cfg" <<'S'
serial --unit=0 --speed=115200
terminal_input serial
terminal_output serial
linux /boot/vmlinuz console=tty0 console=ttyS0 quiet no_timer_check panic=5
initrd /boot/initrd.img
boot
S
. "$HERE/boot_disk.sh"
boot_disk "$B" "${GUEST_DISK_MIB:-48}" guest "$OUT/guest.qcow2"
