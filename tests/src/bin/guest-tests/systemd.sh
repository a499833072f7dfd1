# usertrace.service under a real systemd: started, killed, rotated and stopped by it, while programs are traced.
#
# systemd.sh UNITS USERTRACE NUMBERED OUT: the directory of the units, the programs, and where the log and the traces come

set -e
units=$1 usertrace=$2 numbered=$3 out=$4

host_units sysinit.target basic.target local-fs.target shutdown.target
# Homes are hidden from it, which may be where the program is.
mkdir /run/bin
cp "$usertrace" /run/bin/usertrace
for name in usertrace.service sys-kernel-ltt.mount; do
    sed "s,/usr/bin/usertrace,/run/bin/usertrace," "$units/$name" >"/run/units/$name"
done
# It mounts this itself, and has a directory of its own.
umount /sys/kernel/ltt 2>/dev/null || true
mount -t tmpfs tmpfs /var
mkdir -p /var/lib

boot usertrace.service >"$out/log" 2>&1 &
until systemd=$(pgrep -x systemd); do
    sleep 0.1
done
# And with it all that it has started.
trap 'kill -KILL "$systemd"' EXIT
inside() {
    nsenter --target "$systemd" --pid --mount env PATH="/run/bin:$PATH" "$@"
}
# is_new PID: it is active, and another process than this one.
is_new() {
    [ "$(inside systemctl is-active usertrace 2>/dev/null)" = active ] &&
        [ "$(inside systemctl show --property=MainPID usertrace)" != "$1" ]
}
until is_new none; do
    sleep 0.1
done
echo "first: $(inside systemctl show --property=NRestarts usertrace)"

first=$(inside systemctl show --property=MainPID usertrace)
inside usertrace start mine
inside "$numbered" --events 1000
inside systemctl kill --signal=KILL usertrace
# The buffers are the kernel's.
inside "$numbered" --events 1000
until is_new "$first"; do
    sleep 0.1
done
echo "killed: $(inside systemctl show --property=NRestarts usertrace)"
inside "$numbered" --events 1000
inside systemctl reload usertrace
inside "$numbered" --events 1000
inside systemctl stop usertrace
echo "stopped: $(inside systemctl show --property=Result usertrace)"
inside usertrace destroy mine
cp -R /var/lib/usertrace/mine "$out/traces"
