# What the administrator finds.
cat /proc/cmdline
ls -l /var/crash
traces=$(ls -d /var/crash/usertrace-* | tail -n 1)
[ -d "$traces/services" ] || fail "nothing was extracted"
dump=$(ls /var/crash/*/dump.* | tail -n 1)
[ -s "$dump" ] || fail "kdump saved nothing"
usertrace view --last 2s "$traces" 2>&1 | tail -n 3
for program in redis-server postgres nginx; do
    count=$(events "$program" "$traces")
    echo "$program: $count events before the crash"
    [ "$count" -gt 0 ] || fail "no last events of $program"
done
usertrace report "$traces" -o /root/crash.html
grep -q 'crash_ns' "$(find "$traces" -name metadata | head -n 1)" || fail "the trace does not say when the kernel crashed"
# The saved dump has the same.
usertrace extract "$dump" -o /root/again 2>&1 | tail -n 3
one=$(usertrace view "$traces" 2>/dev/null | wc -l)
other=$(usertrace view /root/again 2>/dev/null | wc -l)
[ "$one" = "$other" ] || fail "$one events from memory, and $other from the dump"
echo "$one events; from the saved dump, too"
journalctl --no-pager -u usertrace-crash | tail -n 10
journalctl --no-pager -u usertrace-crash | grep -q "${traces##*/}" || fail "the journal does not say where the traces are"
# The machine records again.
until_done "the daemon runs" systemctl is-active usertrace
systemctl is-active redis-server nginx
usertrace service list
usertrace status services
usertrace list services | grep -q '^services: active' || fail "the trace was not started again"
