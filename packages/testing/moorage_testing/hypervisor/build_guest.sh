#!/usr/bin/env bash
# Makes the guest of the hypervisor tests from packages of Debian only: no root, no loop device, no mount.
# mke2fs -d fills the file system, and dd puts GRUB in its place.
#
#   build_guest.sh DIRECTORY     makes in DIRECTORY
#     vmlinuz, initrd.img        to boot a kernel directly
#     initrd-agent.img           the same with QEMU's guest agent
#     guest.qcow2                boots by itself, BIOS
#     guest-uefi.qcow2           boots by itself, UEFI, also with Secure Boot: shim, GRUB and kernel are as Debian signed them
#
# Needs: qemu-utils busybox-static cpio e2fsprogs grub-pc-bin grub-common fdisk mtools qemu-guest-agent; kernel, shim and signed GRUB
# (linux-image-cloud-amd64, shim-signed, grub-efi-amd64-signed) are fetched and only unpacked.
# The guest says each thing that it does on its console, in a line that begins with GUEST.
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
      scsi_common scsi_mod virtio_scsi sd_mod sr_mod libata ata_piix efivarfs"
: >"$R/etc/modules"
for m in $MODS; do
  f=$(find "k/lib/modules/$KVER" -name "$m.ko" -print -quit)
  [ -n "$f" ] || continue                      # built in
  cp "$f" "$R/lib/modules/"                    # whole: under Secure Boot the kernel asks for their signatures
  [ "$m" = efivarfs ] || echo "$m" >>"$R/etc/modules"   # which only loads where there is UEFI
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
  ip -4 addr flush dev "$interface"
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
E=/sys/firmware/efi/efivars
if [ -d /sys/firmware/efi ]; then
  insmod /lib/modules/efivarfs.ko; mount -t efivarfs efivarfs $E
  echo "GUEST: firmware uefi, secure boot $(tail -c 1 $E/SecureBoot-8be4df61-93ca-11d2-aa0d-00e098032b8c 2>/dev/null | od -An -tu1 | tr -d ' ')"
else
  echo "GUEST: firmware bios"
fi
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
# the agent, where it is in this ramdisk and has its channel
for p in /sys/class/virtio-ports/*; do
  [ "$(cat $p/name 2>/dev/null)" = org.qemu.guest_agent.0 ] && [ -x /bin/qemu-ga ] || continue
  ( while :; do qemu-ga -m virtio-serial -p /dev/${p##*/} -t /run -f /run/qga.pid; sleep 1; done ) &
done
echo "GUEST: ready $(hostname) up $(cut -d' ' -f1 /proc/uptime)s"
while :; do setsid cttyhack sh -l; done
S
mkdir -p "$R/etc/acpi/PWRF"
cp "$R/etc/power.sh" "$R/etc/acpi/PWRF/00000080"
chmod 755 "$R/init" "$R/etc/guest.sh" "$R/etc/udhcpc.sh" "$R/etc/power.sh" "$R/etc/acpi/PWRF/00000080"
(cd "$R" && find . | LC_ALL=C sort | cpio --quiet -o -H newc -R 0:0 --reproducible) | gzip -9n >"$OUT/initrd.img"

# ---- the agent, in an archive that follows the first one ------------------
A=$WORK/agent
mkdir -p "$A/bin"
cp "$(command -v qemu-ga)" "$A/bin/"
for each in $(ldd "$A/bin/qemu-ga" | grep -o '/[^ ]*'); do
  mkdir -p "$A${each%/*}"
  cp -L "$each" "$A$each"
done
# The agent sets passwords by this program, which BusyBox of Debian lacks; whoever reads the file sees that it was asked, and not the password.
cat >"$A/bin/chpasswd" <<'S'
#!/bin/busybox sh
while IFS=: read -r user password; do
  grep -q "^$user:" /etc/passwd || exit 1
  echo "$user:$(printf %s "$password" | sha256sum | cut -c1-64)" >>/etc/shadow
done
S
chmod 755 "$A/bin/chpasswd"
(cd "$A" && find . | LC_ALL=C sort | cpio --quiet -o -H newc -R 0:0 --reproducible) | gzip -9n >"$WORK/agent.gz"
cat "$OUT/initrd.img" "$WORK/agent.gz" >"$OUT/initrd-agent.img"

# ---- disk image with UEFI's loaders ---------------------------------------
U=$WORK/uefi
mkdir -p "$U"
(cd "$U" && apt-get download shim-signed grub-efi-amd64-signed >/dev/null 2>&1)
for each in "$U"/*.deb; do dpkg-deb -x "$each" "$U"; done
cat >"$WORK/uefi.cfg" <<'S'
linux /vmlinuz console=tty0 console=ttyS0 quiet no_timer_check panic=5 mitigations=off nokaslr cryptomgr.notests=1
initrd /initrd-agent.img
boot
S
MIB=48
truncate -s "${MIB}M" "$WORK/uefi.raw"
printf 'label: dos\nstart=2048, type=ef\n' | /sbin/sfdisk -q "$WORK/uefi.raw"
P=$WORK/uefi.raw@@1M
mformat -i "$P" -v EFI -T $(( (MIB-1)*2048 )) -h 16 -s 63 ::
mmd -i "$P" ::/EFI ::/EFI/BOOT ::/EFI/debian
mcopy -i "$P" "$U/usr/lib/shim/shimx64.efi.signed" ::/EFI/BOOT/BOOTX64.EFI
mcopy -i "$P" "$U/usr/lib/grub/x86_64-efi-signed/grubx64.efi.signed" ::/EFI/BOOT/grubx64.efi
mcopy -i "$P" "$WORK/uefi.cfg" ::/EFI/debian/grub.cfg
mcopy -i "$P" "$OUT/vmlinuz" "$OUT/initrd-agent.img" ::/
qemu-img convert -f raw -O qcow2 "$WORK/uefi.raw" "$OUT/guest-uefi.qcow2"

# ---- disk image ----------------------------------------------------------
B=$WORK/fs
mkdir -p "$B/boot/grub"
cp "$OUT/vmlinuz" "$OUT/initrd.img" "$B/boot/"
cat >"$B/boot/grub/grub.cfg" <<'S'
serial --unit=0 --speed=115200
terminal_input serial
terminal_output serial
linux16 /boot/vmlinuz console=tty0 console=ttyS0 quiet no_timer_check panic=5 mitigations=off nokaslr cryptomgr.notests=1
initrd16 /boot/initrd.img
boot
S
. "$HERE/boot_disk.sh"
boot_disk "$B" "${GUEST_DISK_MIB:-48}" guest "$OUT/guest.qcow2"
