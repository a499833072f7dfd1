# The events of the boot before.
cat /sys/kernel/ltt/reserved
usertrace extract --previous-boot -o /root/reset
count=$(usertrace view --where 'size >= 1000000 && size < 1000500' /root/reset 2>/dev/null | grep -c libc:malloc || true)
[ "$count" = 500 ] || fail "$count of 500 events are there"
[ "$(events redis-server /root/reset)" -gt 0 ] || fail "nothing of redis is there"
echo "500 events, and $(events redis-server /root/reset) of redis"
