# An unprivileged group reads the traces.
groupadd --system tracing
useradd --create-home --groups tracing reader
useradd --create-home stranger
chgrp tracing /sys/kernel/ltt
chmod g+w,+t /sys/kernel/ltt
chgrp -R tracing /sys/kernel/ltt/services
find /sys/kernel/ltt/services -type d -exec chmod g+rwx {} +
# The rights are for programs that come later.
systemctl restart redis-server nginx postgresql@17-main
until_done "redis answers" redis-cli ping
su reader -c 'cd && usertrace snapshot services -o snapshot'
count=$(su reader -c 'cd && usertrace view snapshot' | grep -c redis-server || true)
[ "$count" -gt 0 ] || fail "the group reads nothing of redis"
echo "a member of the group reads $count events of redis"
su stranger -c 'cd && usertrace snapshot services -o snapshot' || true
[ "$(su stranger -c 'cd && usertrace view snapshot' 2>/dev/null | wc -l)" = 0 ] || fail "a stranger reads the trace"
