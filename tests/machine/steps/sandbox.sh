# One setting of a unit at a time. A program writes 100 events, which are recorded.
usertrace service disable probe >/dev/null 2>&1 || true
library=/usr/lib/usertrace/libusertrace_malloc.so
number=1000000
counts() {
    usertrace view --symbols never --from "$since" --where "size >= $1 && size < $(($1 + 1000))" $(ls -d $recordings/services/* | tail -n 2) 2>/dev/null | grep -c ' libc:malloc:' || true
}
# marked: waits until an event that is written now was recorded, and so all before it.
marker=5000000
since=$(date +%s)
marked() {
    LD_PRELOAD=$library numbered $marker 1 0 >/dev/null
    until [ "$(counts $marker)" = 1 ]; do sleep 1; done
    marker=$((marker + 1000))
}
failures=
# try EXPECTED EVENTS HOW SETTING...: runs the program as a service with these settings. HOW is how it gets the library:
# enable, as usertrace service does; or preload, by its own drop-in.
try() {
    local result=$1 expected=$2 how=$3 setting found
    shift 3
    number=$((number + 1000))
    since=$(date +%s)
    {
        printf '[Service]\nType=oneshot\nExecStart=/usr/local/bin/numbered %s 100 0\n' $number
        [ "$how" = enable ] || printf 'Environment=LD_PRELOAD=%s\n' "$library"
        for setting; do printf '%s\n' "$setting"; done
    } >/etc/systemd/system/probe.service
    systemctl daemon-reload
    [ "$how" != enable ] || usertrace service enable --malloc probe >/dev/null
    systemctl start probe 2>/dev/null || true
    until [ "$(systemctl show -P ActiveState probe)" != activating ]; do sleep 1; done
    found="$(systemctl show -P Result probe) $(systemctl show -P ExecMainStatus probe)"
    marked
    found="$found $(counts $number)"
    echo "RESULT $how $*: $found events"
    case "$found" in
    "$result "*" $expected") ;;
    *)
        failures="$failures; $how $*: $found, expected $result $expected"
        journalctl -b -u probe --no-pager | tail -n 3
        ;;
    esac
    [ "$how" != enable ] || usertrace service disable probe >/dev/null
    systemctl reset-failed probe 2>/dev/null || true
}

try success 100 enable
# What happens without the drop-in's filter: systemd refuses calls that it does not know, and does not kill for them. The
# program runs untraced.
try success 0 preload SystemCallFilter=@system-service
try success 0 preload SystemCallFilter=@system-service SystemCallErrorNumber=EPERM
try success 100 preload SystemCallFilter=~@mount
try success 100 enable SystemCallFilter=@system-service
try success 100 enable SystemCallFilter=@system-service SystemCallErrorNumber=EPERM
try success 100 enable 'SystemCallFilter=~@mount @process'
# The drop-in refuses nothing that the unit allows.
printf '[Service]\nExecStart=/usr/local/bin/numbered 1 1 0\nSystemCallFilter=@system-service\nSystemCallFilter=~@privileged @resources\n' \
    >/etc/systemd/system/probe.service
systemctl daemon-reload
filter() { systemctl show -P SystemCallFilter probe | tr -d '~' | tr ' ' '\n' | sort; }
filter >/root/allowed
usertrace service enable --malloc probe >/dev/null
filter >/root/refused
[ -s /root/allowed ] && [ -s /root/refused ] && [ -z "$(comm -12 /root/allowed /root/refused)" ] ||
    failures="$failures; the filters overlap: $(comm -12 /root/allowed /root/refused | tr '\n' ' ')"
usertrace service disable probe >/dev/null

for setting in MemoryDenyWriteExecute=yes PrivateUsers=yes ProtectKernelTunables=yes ProtectSystem=strict ProtectHome=yes \
    PrivateTmp=yes PrivateNetwork=yes PrivateDevices=yes ProtectProc=invisible ProcSubset=pid NoNewPrivileges=yes \
    DynamicUser=yes RestrictNamespaces=yes RestrictAddressFamilies=none LockPersonality=yes RestrictRealtime=yes \
    RestrictSUIDSGID=yes SystemCallArchitectures=native CapabilityBoundingSet= PrivateMounts=yes ProtectControlGroups=yes \
    LimitMEMLOCK=0 TasksMax=1 MemoryMax=32M PrivatePIDs=yes TemporaryFileSystem=/usr/lib/usertrace; do
    try success 100 enable "$setting"
done
try success 100 enable SystemCallFilter=@system-service MemoryDenyWriteExecute=yes PrivateUsers=yes \
    ProtectKernelTunables=yes ProtectSystem=strict ProtectHome=yes PrivateTmp=yes PrivateNetwork=yes PrivateDevices=yes \
    ProtectProc=invisible ProcSubset=pid NoNewPrivileges=yes DynamicUser=yes RestrictNamespaces=yes LockPersonality=yes \
    RestrictRealtime=yes RestrictSUIDSGID=yes SystemCallArchitectures=native CapabilityBoundingSet=

# A profile of AppArmor with Debian's own abstraction, which allows libraries below /usr/lib.
printf '#include <tunables/global>\nprofile probe /usr/local/bin/numbered {\n  #include <abstractions/base>\n  /usr/local/bin/numbered mr,\n}\n' \
    >/etc/apparmor.d/probe
apparmor_parser --replace /etc/apparmor.d/probe
try success 100 enable AppArmorProfile=probe
# One without it: the program starts, and the dynamic linker says that it cannot load the library.
printf '#include <tunables/global>\nprofile probe /usr/local/bin/numbered {\n  /usr/local/bin/numbered mr,\n  /usr/lib/x86_64-linux-gnu/** mr,\n  /etc/ld.so.* r,\n}\n' \
    >/etc/apparmor.d/probe
apparmor_parser --replace /etc/apparmor.d/probe
try success 0 enable AppArmorProfile=probe
apparmor_parser --remove /etc/apparmor.d/probe
rm /etc/apparmor.d/probe

# A container without a network, with the machine's own root file system.
number=$((number + 1000))
if podman run --rm --network none --security-opt seccomp=unconfined --env LD_PRELOAD=$library --rootfs /:O numbered $number 100 0; then
    marked
    found=$(counts $number)
    echo "RESULT podman, seccomp=unconfined: $found events"
    [ "$found" = 100 ] || failures="$failures; podman"
else
    echo "RESULT podman does not run here"
fi
number=$((number + 1000))
if podman run --rm --network none --env LD_PRELOAD=$library --rootfs /:O numbered $number 100 0; then
    marked
    echo "RESULT podman, its own seccomp profile: $(counts $number) events"
fi
[ -z "$failures" ] || fail "$failures"
