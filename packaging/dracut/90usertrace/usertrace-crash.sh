#!/bin/sh
# usertrace-crash: in a crash kernel's initramfs, takes the traces out of the dead kernel's memory.
#
# They are in usertrace-TIME, in the directory that usertrace.crash_dir= on the kernel's command line names, as the initramfs
# sees it (the root file system is at /sysroot); or else where kdump saves memory, by /etc/kdump.conf; or else in /var/crash of
# the root file system. Whatever goes wrong, the status is 0: memory is to be saved all the same.

[ -e /proc/vmcore ] || exit 0
PATH=/usr/sbin:/usr/bin:/sbin:/bin
# shellcheck source=/dev/null
. /lib/dracut-lib.sh

say() { echo "usertrace: $*" >&2; }

give_up() {
    say "no traces are taken out of memory: $*"
    exit 0
}

# Sets directory to where kdump's module saves memory. It mounts that by its own fstab, at the latest when it saves.
by_kdump_conf() {
    mount_point=${NEWROOT:-/sysroot} path=/var/crash
    if [ -r /etc/kdump.conf ]; then
        while read -r name value; do
            value=${value%%#*}
            value=${value%"${value##*[![:space:]]}"}
            case $name in
            path) path=$value ;;
            ext[234] | xfs | btrfs | minix | nfs | virtiofs)
                findmnt -k --source "$value" >/dev/null || mount "$value"
                mount_point=$(findmnt -k -n -r -f -o TARGET --source "$value") || give_up "$value is not mounted"
                ;;
            ssh | raw) give_up "kdump saves memory to no file system; usertrace.crash_dir= names another" ;;
            esac
        done </etc/kdump.conf
    fi
    directory=$mount_point/$path
}

directory=$(getarg usertrace.crash_dir=)
[ -n "$directory" ] || by_kdump_conf

case $directory in
/*) ;;
*) give_up "$directory is no absolute path" ;;
esac
# The file system that will have it, even if the directory is not there yet.
there=$directory
while [ ! -d "$there/" ]; do
    there=${there%/*}
done
mount_point=$(findmnt -k -n -r -f -o TARGET --target "$there/")
case $mount_point in
/ | '') give_up "$directory would be in the initramfs, which is lost" ;;
esac
case ,$(findmnt -k -n -r -f -o OPTIONS "$mount_point"), in
*,ro,*)
    mount -o remount,rw "$mount_point" || give_up "$mount_point cannot be written to"
    read_only=yes
    ;;
esac

umask 0077
# An extraction that hangs is not to keep memory from being saved either.
if mkdir -p "$directory" && cd "$directory"; then
    timeout 600 usertrace extract /proc/vmcore || say "usertrace extract ended with status $?"
    cd / && sync
else
    say "no traces are taken out of memory: $directory cannot be made"
fi
# As whoever mounted it wanted it.
[ -z "${read_only:-}" ] || mount -o remount,ro "$mount_point"
exit 0
