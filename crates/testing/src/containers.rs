//! A stand-in for the command `docker`, which needs no service and no images.
//!
//! It is a script that runs a program with namespaces and a root of its own, by `unshare` and
//! `chroot`. The root has the files of an image, the shared libraries that these need, `/proc` and
//! the volume. Only the volume can be written to. Users other than root need a user namespace for
//! that, which not every system allows.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

/// The script. `IMAGE` stands for lines that add files, and `COMMAND` for the command of the image.
const DOCKER: &str = r#"#!/bin/sh
# docker run [-v HOST:DIRECTORY] [-e NAME=VALUE]... image [COMMAND]...
set -euf
PATH=$PATH:/usr/sbin:/sbin
if [ "$1" = run ]; then
    shift
    # Like docker, make the directory of the volume.
    before=
    for word; do
        [ "$before" != -v ] || mkdir -p "${word%%:*}"
        before=$word
    done
    mkdir -p "$0.root"
    user=
    [ "$(id -u)" = 0 ] || user='--user --map-root-user'
    exec unshare $user --mount-proc --pid --fork --net --ipc --uts "$0" start "$@"
fi

# This is process 1 of the namespaces.
shift
from= to= variables=
while [ $# -gt 0 ]; do
    case $1 in
    -v) from=${2%%:*} to=${2#*:}; shift 2 ;;
    -e) variables="$variables '$2'"; shift 2 ;;
    image) shift; break ;;
    *) echo "docker: unknown argument $1" >&2; exit 125 ;;
    esac
done
[ $# -gt 0 ] || set -- COMMAND
root=$0.root
# add FILE PATH: shows a file of the machine in the container.
add() {
    [ -e "$root$2" ] || {
        mkdir -p "$root${2%/*}"
        : >"$root$2"
        mount --bind "$1" "$root$2"
    }
}
# add_program FILE PATH: the same, and the libraries that the file needs.
add_program() {
    add "$1" "$2"
    for library in $(ldd "$1" | sed -n 's/^[^/]*\(\/[^ ]*\) (0x.*/\1/p'); do
        add "$library" "$library"
    done
}
mount -t tmpfs none "$root"
add_program "$(command -v env)" /usr/bin/env
IMAGE
mkdir -p "$root/proc" "$root$to"
mount -t proc none "$root/proc"
mount --bind "$from" "$root$to"
mount -o remount,bind,ro "$root"
eval "set -- $variables \"\$@\""
exec chroot "$root" /usr/bin/env -i PATH=/usr/bin "$@"
"#;

/// Writes the script as `docker` into a directory, and returns its path. The image has each file at
/// the path that is named first, and starts `command` if the command line has none.
///
/// # Panics
/// If a path of a file has a quotation mark in it, or the script cannot be written.
pub fn docker(directory: &Path, image: &[(String, PathBuf)], command: &str) -> PathBuf {
    let mut lines = String::new();
    for (path, file) in image {
        let file = file.to_str().unwrap();
        assert!(!file.contains('\''), "{file}");
        lines += &format!("add_program '{file}' {path}\n");
    }
    let text = DOCKER
        .replace("IMAGE\n", &lines)
        .replace("COMMAND\n", &format!("{command}\n"));
    let docker = directory.join("docker");
    fs::write(&docker, text).unwrap();
    fs::set_permissions(&docker, fs::Permissions::from_mode(0o755)).unwrap();
    docker
}
