# Starts systemd in the crash kernel as Debian's kdump-tools has the crash kernel do it, with systemd.unit=kdump-tools-dump.service:
# with that package's own unit, which runs its own scripts. They restart the machine, which here ends no more than systemd.
#
# kdump-tools.sh KDUMP_TOOLS UNITS USERTRACE: the package, and a root with the units and links to those that are enabled, unpacked

set -e
kdump_tools=$1 units=$2 usertrace=$3

# own DIRECTORY: the host's cannot be written to; this has links to what is there.
own() {
    mkdir -p "/run/host/$1"
    mount --bind "/$1" "/run/host/$1"
    mount -t tmpfs -o mode=755 tmpfs "/$1"
    ln -s -t "/$1" "/run/host/$1"/*
}
PATH=$PATH:/run/host/usr/bin:/run/host/usr/sbin
own etc
own usr/sbin
own usr/bin
for name in etc/default etc/init.d etc/systemd usr/bin/usertrace usr/sbin/kdump-config; do
    rm -f "/$name"
done
mkdir -p /etc/default /etc/init.d /etc/systemd
cp "$kdump_tools/etc/init.d/kdump-tools" /etc/init.d/
cp "$kdump_tools/usr/share/kdump-tools/kdump-tools.conf" /etc/default/kdump-tools
cp "$kdump_tools/usr/sbin/kdump-config" /usr/sbin/
# It takes its time, which must be waited for.
printf '#!/bin/sh\nsleep 4\nexec "%s" "$@"\n' "$usertrace" >/usr/bin/usertrace
chmod +x /usr/bin/usertrace
cp -R "$units/etc/systemd/system" /etc/systemd/
cp "$units"/lib/systemd/system/*.service /run/units/
host_units sysinit.target basic.target network-online.target local-fs.target shutdown.target
mount -t tmpfs tmpfs /var
mkdir -p /var/crash /out/crash
mount --bind /out/crash /var/crash

boot kdump-tools-dump.service || echo "systemd ended with status $?"
