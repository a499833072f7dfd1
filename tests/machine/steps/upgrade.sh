# An upgrade while services are traced loses nothing.
before=$(systemctl show -P MainPID usertrace)
redis=$(systemctl show -P MainPID redis-server)
count=2000
began=$(date +%s)
LD_PRELOAD=/usr/lib/usertrace/libusertrace_malloc.so numbered 1000000 $count 5000 &
dpkg --install /root/usertrace-upgrade.deb
wait
[ "$(systemctl show -P MainPID usertrace)" != "$before" ] || fail "the upgrade did not restart the daemon"
[ "$(systemctl show -P MainPID redis-server)" = "$redis" ] || fail "the upgrade restarted a service"
systemctl is-active usertrace
seen() {
    usertrace view --from "$began" --where 'size >= 1000000 && size < 1100000' $recordings/services 2>/dev/null |
        sed -n 's/.*numbered.* libc:malloc:.*[{ ]size = \([0-9]*\),.*/\1/p' | sort -n | uniq -c |
        awk '$1 != 1 { double++ } { n++ } END { print n + 0, double + 0 }'
}
until_done "the new daemon has read all" sh -c "usertrace view --from $began $recordings/services 2>/dev/null | grep -q 'size = $((1000000 + count - 1)),'"
[ "$(seen)" = "$count 0" ] || fail "of $count events there are (and double): $(seen)"
echo "all $count events are there, once"
