# Systemd in a guest, for scripts of tests, which have this in front of them. It has the units in /run/units, and no others: of the
# system's own ones a script takes what its units name, with nothing that they want, so that it boots quickly.

mkdir -p /run/units

# host_units NAME...: takes units of the system's own.
host_units() {
    for name in "$@"; do
        cp "/usr/lib/systemd/system/$name" /run/units/
    done
}

# boot UNIT: starts systemd with this unit, and waits for its end.
# Only a failing test waits ten minutes.
boot() {
    timeout 600 unshare --pid --fork --kill-child --mount --mount-proc \
        env --ignore-environment PATH=/usr/sbin:/usr/bin container=other SYSTEMD_UNIT_PATH=/etc/systemd/system:/run/units \
        /usr/lib/systemd/systemd --system --unit="$1" --log-target=console --default-standard-output=inherit </dev/null
}
