#!/usr/bin/env bash
# Makes a guest that one can log into, from the guest of build_guest.sh and packages of Debian that are only unpacked: no root, no loop
# device, no mount.  It runs from its disk, so what is written there is in snapshots and after reboots.
#
#   build_login_guest.sh GUEST     GUEST has vmlinuz and initrd.img; makes GUEST/login.qcow2 (boots by itself, BIOS)
#
# SSH at port 22, by IPv4 and IPv6, for the user "tempest" (who is root): by the keys of the server's metadata, and by its admin password
# where the config drive has one, else by "gocubsgo".  It has the commands that Tempest's tests type in guests, and no more.
# Needs: what build_guest.sh needs.
set -euo pipefail
GUEST=$(realpath "${1:?GUEST}")
HERE=$(dirname "$(realpath "$0")")
WORK=$(mktemp -d)
trap 'rm -rf "$WORK"' EXIT
USER_NAME=tempest PASSWORD=gocubsgo

# ---- packages ------------------------------------------------------------
mkdir "$WORK/debs"
cd "$WORK/debs"
apt-get download -qq bash dropbear-bin e2fsprogs netcat-traditional util-linux \
  libblkid1 libc6 libcom-err2 libcrypt1 libext2fs2 libgmp10 libmount1 libpcre2-8-0 libselinux1 libsmartcols1 libtinfo6 libtomcrypt1 \
  libtommath1 libudev1 libuuid1 zlib1g 2>/dev/null
for each in *.deb; do dpkg-deb -x "$each" "$WORK/unpacked"; done
cd "$WORK/unpacked"

# ---- tree ----------------------------------------------------------------
R=$WORK/tree
mkdir -p "$R"
(cd "$R" && gzip -dc "$GUEST/initrd.img" | cpio --quiet -id --no-absolute-filenames)
rm -rf "$R/init" "$R/init.busybox" "$R/lib/modules" "$R/etc/modules"
mkdir -p "$R"/{root,sbin,lib64,usr/bin,usr/sbin,home/$USER_NAME/.ssh,etc/dropbear,var,boot/grub}
ln -s ../run "$R/var/run"
busybox --list | grep -vx busybox | while read -r each; do ln -sf busybox "$R/bin/$each"; done
for each in bin/bash bin/lsblk sbin/blkid sbin/mke2fs usr/sbin/dropbear usr/bin/dropbearkey; do cp "$each" "$R/$each"; done
cp bin/nc.traditional "$R/bin/netcat"
ln -s mke2fs "$R/sbin/mkfs.ext4"
ln -s mke2fs "$R/sbin/mkfs.ext3"
needed() { objdump -p "$1" | awk '/NEEDED/{print $2}'; }
lacking=$(for each in "$R"/bin/bash "$R"/bin/lsblk "$R"/sbin/blkid "$R"/sbin/mke2fs "$R"/usr/sbin/dropbear "$R"/bin/netcat; do needed "$each"; done)
while [ -n "$lacking" ]; do
  more=
  for each in $lacking; do
    [ -e "$R/lib/$each" ] && continue
    cp -L "$(find . -name "$each" -print -quit)" "$R/lib/$each"
    more="$more $(needed "$R/lib/$each")"
  done
  lacking=$(echo $more)
done
cp -L "$(find . -name 'ld-linux-x86-64.so.2' -print -quit)" "$R/lib64/"

printf 'root:x:0:0:root:/root:/bin/sh\n%s:x:0:0::/home/%s:/bin/bash\n' $USER_NAME $USER_NAME >"$R/etc/passwd"
printf 'root:*:19000:0:99999:7:::\n%s:%s:19000:0:99999:7:::\n' $USER_NAME "$(busybox mkpasswd -m sha256 $PASSWORD)" >"$R/etc/shadow"
printf 'root:x:0:\n' >"$R/etc/group"
printf '/bin/sh\n/bin/bash\n' >"$R/etc/shells"
printf '/dev/vda1 / ext4 rw 0 0\n' >"$R/etc/fstab"
ln -s /proc/mounts "$R/etc/mtab"

# The shell of this BusyBox prefers its own commands to all others, so what stands in for one of them is for bash.
mkdir -p "$R/usr/bin"
cat >"$R/usr/bin/sudo" <<'S'
#!/bin/bash
exec "$@"
S
cat >"$R/usr/bin/mkfs" <<'S'
#!/bin/bash
kind=ext4
[ "$1" = -t ] && { kind=$2; shift 2; }
[ "$kind" = vfat ] && exec busybox mkdosfs "$@"
exec "/sbin/mkfs.$kind" -q -F "$@"
S
cat >"$R/usr/bin/curl" <<'S'
#!/bin/bash
# By wget: a page, what is posted (-d), or what it is (-V).
own=()
while [ $# -gt 0 ]; do
  case "$1" in
  -V|--version) echo "curl by BusyBox's wget"; exit ;;
  -X) shift ;;
  -d) shift; own+=("--post-data=$1") ;;
  *) own+=("$1") ;;
  esac
  shift
done
exec busybox timeout 30 busybox wget -q -O - "${own[@]}"
S
cat >"$R/usr/bin/nc" <<'S'
#!/bin/bash
# -lk -e PROGRAM…: answers again and again; all else is netcat's own.
own=() keeps=
while [ $# -gt 0 ]; do
  case "$1" in
  -lk|-kl) keeps=1; own+=(-l) ;;
  -e) shift; own+=(-c "$*"); break ;;
  *) own+=("$1") ;;
  esac
  shift
done
[ -n "$keeps" ] || exec netcat "${own[@]}"
exec </dev/null >/dev/null 2>&1
while netcat "${own[@]}"; [ $? -le 1 ]; do :; done
S
cat >"$R/usr/sbin/power" <<'S'
#!/bin/busybox sh
sync; mount -o remount,ro / 2>/dev/null; exec busybox "${0##*/}" -f
S
for each in poweroff reboot halt; do rm -f "$R/bin/$each"; cp "$R/usr/sbin/power" "$R/bin/$each"; done
sed -i 's/^\(.*\)poweroff -f$/\1busybox poweroff -f/' "$R/etc/power.sh" "$R/etc/acpi/PWRF/00000080"
chmod 755 "$R"/usr/bin/* "$R"/bin/{poweroff,reboot,halt}
cat >"$R/etc/profile" <<'S'
export PATH=/usr/bin:/bin:/sbin:/usr/sbin
S
cp "$R/etc/profile" "$R/home/$USER_NAME/.bashrc"
cat >"$R/etc/login.sh" <<S
# Read by guest.sh, which calls may_log_in with the server's metadata.
export PATH=/usr/bin:/bin:/sbin:/usr/sbin METADATA_TRIES=40
USER_NAME=$USER_NAME
S
cat >>"$R/etc/login.sh" <<'S'
mount -o remount,rw / 2>/dev/null
may_log_in() {
  home=/home/$USER_NAME
  if [ -s "$1" ]; then
    # values of "public_keys" are the only ones that begin like keys
    grep -o '"[a-z0-9@.-]* AAAA[^"\\]*' "$1" | tr -d '"' | sort -u >$home/.ssh/authorized_keys
    secret=$(sed -n 's/.*"admin_pass": *"\([^"]*\)".*/\1/p' "$1")
    # files that were given with the server
    grep -o '{"path": *"[^"]*", *"content_path": *"[^"]*"}' "$1" | sed 's/.*"path": *"\([^"]*\)".*"content_path": *"\([^"]*\)".*/\1 \2/' \
      | while read -r path content; do
        mkdir -p "${path%/*}"
        cp "/mnt/config/openstack$content" "$path" 2>/dev/null || timeout 9 wget -q -O "$path" "http://169.254.169.254/openstack$content"
      done
    [ -z "$secret" ] || sed -i "s|^$USER_NAME:[^:]*|$USER_NAME:$(mkpasswd -m sha256 "$secret")|" /etc/shadow
  fi
  umount /mnt/config 2>/dev/null
  chmod 700 $home $home/.ssh
  [ ! -e $home/.ssh/authorized_keys ] || chmod 600 $home/.ssh/authorized_keys
  [ -e /etc/dropbear/dropbear_ed25519_host_key ] || dropbearkey -t ed25519 -f /etc/dropbear/dropbear_ed25519_host_key >/dev/null 2>&1
  sync
  dropbear -E -p 22
}
S

cp "$GUEST/vmlinuz" "$GUEST/initrd.img" "$R/boot/"
cat >"$R/boot/grub/grub.cfg" <<'S'
serial --unit=0 --speed=115200
terminal_input serial
terminal_output serial
linux16 /boot/vmlinuz console=tty0 console=ttyS0 quiet no_timer_check panic=5 mitigations=off nokaslr cryptomgr.notests=1
initrd16 /boot/initrd.img
boot
S
. "$HERE/boot_disk.sh"
boot_disk "$R" "${LOGIN_DISK_MIB:-96}" login "$GUEST/login.qcow2"
