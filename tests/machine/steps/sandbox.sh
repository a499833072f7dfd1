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
    ProtectClock=yes ProtectHostname=yes ProtectKernelLogs=yes ProtectKernelModules=yes KeyringMode=private RemoveIPC=yes \
    IPAddressDeny=any DevicePolicy=closed UMask=0777 PrivateIPC=yes PrivatePIDs=yes LimitMEMLOCK=0 LimitNOFILE=16 TasksMax=1 \
    MemoryMax=32M MemoryHigh=4M TemporaryFileSystem=/usr/lib/usertrace; do
    try success 100 enable "$setting"
done
# The capability that a service keeps without root grants no more than others have.
try success 100 enable User=nobody AmbientCapabilities=CAP_NET_BIND_SERVICE
try success 100 enable SystemCallFilter=@system-service MemoryDenyWriteExecute=yes PrivateUsers=yes \
    ProtectKernelTunables=yes ProtectSystem=strict ProtectHome=yes PrivateTmp=yes PrivateNetwork=yes PrivateDevices=yes \
    ProtectProc=invisible ProcSubset=pid NoNewPrivileges=yes DynamicUser=yes RestrictNamespaces=yes LockPersonality=yes \
    RestrictRealtime=yes RestrictSUIDSGID=yes SystemCallArchitectures=native CapabilityBoundingSet=

# Only some files may be mapped as code: the drop-in adds the library.
execute="ExecPaths=/usr/local/bin/numbered /usr/lib/x86_64-linux-gnu /usr/lib64"
try success 0 preload NoExecPaths=/ "$execute"
try success 100 enable NoExecPaths=/ "$execute"

# A root directory with nothing but the program and what it is linked with: the drop-in adds the library.
root=/srv/root
rm -rf $root
mkdir -p $root/usr/local/bin
cp /usr/local/bin/numbered $root/usr/local/bin/
ldd /usr/local/bin/numbered $library | grep -o '/[^ ]*\.so[^ ]*' | sort -u | while read -r file; do
    mkdir -p "$root${file%/*}"
    cp -L "$file" "$root$file"
done
rm -rf $root/usr/lib/usertrace
try success 0 preload RootDirectory=$root
try success 100 enable RootDirectory=$root

# A limit that the buffers do not fit into: the program goes on, and what is missing is reported.
number=$((number + 1000))
since=$(date +%s)
printf '[Service]\nType=oneshot\nExecStart=/usr/local/bin/numbered 100 200000 0\nMemoryMax=2M\nMemorySwapMax=0\n' >/etc/systemd/system/probe.service
systemctl daemon-reload
usertrace service enable --malloc probe >/dev/null
systemctl start probe || true
found=$(systemctl show -P Result probe)
marked
usertrace view --symbols never --from "$since" --where 'size >= 100 && size < 200100' $(ls -d $recordings/services/* | tail -n 4) \
    >/root/events 2>/root/said || true
seen=$(grep -c ' libc:malloc:' /root/events || true)
sed -n 1,3p /root/said | cut -c 1-200
echo "RESULT enable MemoryMax=2M: $found, $seen of 200000 events"
[ "$found" = success ] || failures="$failures; MemoryMax=2M: $found"
[ "$seen" = 200000 ] || [ -s /root/said ] || failures="$failures; MemoryMax=2M: a silent loss"
usertrace service disable probe >/dev/null

# profile TEXT: loads a profile of AppArmor for the program.
profile() {
    printf '#include <tunables/global>\nprofile probe /usr/local/bin/numbered {\n%s\n}\n' "$1" >/etc/apparmor.d/probe
    apparmor_parser --replace /etc/apparmor.d/probe
}
# With Debian's own abstraction, which allows libraries below /usr/lib.
profile '  #include <abstractions/base>
  /usr/local/bin/numbered mr,'
try success 100 enable AppArmorProfile=probe
# Without it, the program starts, and the dynamic linker says that it cannot load the library.
bare='  /usr/local/bin/numbered mr,
  /usr/lib/x86_64-linux-gnu/** mr,
  /etc/ld.so.* r,'
profile "$bare"
try success 0 enable AppArmorProfile=probe
profile "$bare
  /usr/lib/usertrace/*.so mr,"
try success 100 enable AppArmorProfile=probe
# A profile that is attached by the program's path, as those of Debian's packages.
try success 100 enable
apparmor_parser --remove /etc/apparmor.d/probe
rm /etc/apparmor.d/probe

# Containers without a network, with the machine's own root file system: with podman's own seccomp profile, and without it.
podman run --rm --network none --rootfs /:O true || failures="$failures; podman does not run"
for profile in unconfined default; do
    number=$((number + 1000))
    since=$(date +%s)
    option=
    [ $profile = default ] || option="--security-opt seccomp=$profile"
    # shellcheck disable=SC2086 # two words
    podman run --rm --network none $option --env LD_PRELOAD=$library --rootfs /:O sh -c \
        "grep Seccomp: /proc/self/status; exec numbered $number 100 0" || failures="$failures; podman, seccomp=$profile"
    marked
    found=$(counts $number)
    echo "RESULT podman, seccomp=$profile: $found events"
    case $profile,$found in
    unconfined,100 | default,0) ;;
    *) failures="$failures; podman, seccomp=$profile: $found events" ;;
    esac
done

# chronyd has a filter of its own, which kills for calls that it does not know, as gettid. enable says so. Without contexts,
# events need no call.
usertrace destroy services
usertrace start plain -e 'libc:*,pthread:*'
usertrace service enable --malloc --pthread chrony 2>&1 | grep 'uses libseccomp' ||
    failures="$failures; enable says nothing of chronyd's filter"
systemctl restart chrony
until chronyc -n activity >/root/activity 2>&1 || [ "$(systemctl is-active chrony)" = failed ]; do sleep 1; done
pid=$(systemctl show -P MainPID chrony)
usertrace service disable chrony >/dev/null
systemctl stop chrony
found=$(systemctl show -P Result chrony)
marked_by() { ls -d $recordings/plain/*/*-"$1"-*; }
[ "$found" != success ] || until_done "chronyd is recorded" marked_by "$pid"
echo "RESULT chronyd with its own filter, no contexts: $found"
[ "$found" = success ] || failures="$failures; chronyd: $found"
[ -z "$failures" ] || fail "$failures"
