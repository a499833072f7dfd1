# Removing the packages leaves nothing, after the line that an administrator has written.
sed -i /LD_PRELOAD/d /etc/postgresql/17/main/environment
apt-get -y -qq purge usertrace libusertrace1 libusertrace-dev 2>&1 | tail -n 12
left=$(find / -xdev \( -path /root -o -path /home -o -path /var/crash -o -path /proc \) -prune -o -iname '*usertrace*' -print |
    grep -v '^/var/log\|^/etc/systemd/system/usertrace.service.d' || true)
[ -z "$left" ] || fail "these are left: $left"
! grep -rl usertrace /etc --include='*.conf' | grep -v usertrace.service.d || fail "configuration is left"
! mountpoint -q /sys/kernel/ltt || fail "the control file system is mounted"
[ -z "$(systemctl list-unit-files --no-legend '*usertrace*' '*ltt*')" ] || fail "units are left"
systemctl restart redis-server nginx 'postgresql@*'
for unit in redis-server nginx postgresql@17-main; do
    ! grep -q usertrace "/proc/$(systemctl show -P MainPID $unit)/maps" || fail "$unit has the libraries"
done
! journalctl -b --no-pager -u redis-server -u nginx | grep 'cannot be preloaded' || fail "a service looks for the libraries"
