# The events of the boot before: in memory those that were not read, or whose process still ran; in the recording the others.
cat /sys/kernel/ltt/reserved
usertrace extract --previous-boot -o /root/reset
count=$(usertrace view --where 'size >= 1000000 && size < 1000500' /root/reset $recordings/services 2>/dev/null |
    sed -n 's/.*numbered.* libc:malloc:.*[{ ]size = \([0-9]*\),.*/\1/p' | sort -u | wc -l)
[ "$count" = 500 ] || fail "$count of 500 events are there"
[ "$(events redis-server /root/reset)" -gt 0 ] || fail "nothing of redis is there"
echo "500 events, and $(events redis-server /root/reset) of redis"
