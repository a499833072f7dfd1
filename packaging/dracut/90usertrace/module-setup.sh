#!/bin/bash
# Takes the traces out of the dead kernel's memory in the crash kernel, from its initramfs. Nobody gets it without asking:
#
#   dracut_args --add usertrace            in /etc/kdump.conf (Fedora, RHEL), and then: kdumpctl rebuild
#   dracut --add usertrace ...             where kdump's initramfs is made by hand

# called by dracut
check() {
    require_binaries usertrace timeout || return 1
    return 255
}

# called by dracut
depends() {
    echo base
}

# called by dracut
install() {
    inst_multiple timeout mount findmnt mkdir sync
    # Where the script looks for it, wherever it is here.
    inst_binary "$(find_binary usertrace)" /usr/bin/usertrace
    # shellcheck disable=SC2154 # dracut's
    inst_script "$moddir/usertrace-crash.sh" /usr/sbin/usertrace-crash
    # kdump's module saves memory after all hooks, or without them if the root file system cannot be mounted; it runs what is
    # here before that.
    if dracut_module_included kdumpbase; then
        inst_script "$moddir/usertrace-crash.sh" /etc/kdump/pre.d/50-usertrace
    else
        inst_hook pre-pivot 80 "$moddir/pre-pivot.sh"
    fi
}
