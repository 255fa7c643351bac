#!/bin/sh
# Runs a client against a daemon that can harm nothing: it is asked to write, remove and run whatever comes to mind.
#
# usage: confined.sh RINGD DIRECTORY CLIENT...   (root; DIRECTORY is empty; the client gets the daemon's URL behind)
#
# Everything is in namespaces of its own: mounts, processes, network (loopback alone), IPC, host name. The daemon sees
# a root of its own besides: a small tmpfs with the system's programs, read-only, and a directory to work in. It runs
# under an id that nobody has, without capabilities, and can get none.
set -eu

if [ "${1-}" != inside ]; then
    exec unshare --mount --pid --net --ipc --uts --fork --kill-child --propagation private -- "$0" inside "$@"
fi
shift
ringd=$1 root=$2
shift 2

mount -t proc -o nosuid,nodev,noexec proc /proc
python3 - <<'UP'
# ifconfig lo up: SIOCGIFFLAGS, SIOCSIFFLAGS with IFF_UP.
import fcntl, socket, struct
with socket.socket() as any_socket:
    request = struct.pack("16sh22x", b"lo", 0)
    (flags,) = struct.unpack_from("h", fcntl.ioctl(any_socket, 0x8913, request), 16)
    fcntl.ioctl(any_socket, 0x8914, struct.pack("16sh22x", b"lo", flags | 1))
UP

mount -t tmpfs -o size=64m,mode=755,nosuid,nodev tmpfs "$root"
cd "$root"
mkdir usr etc proc dev tmp work old
mount --bind /usr usr
mount -o remount,bind,ro,nosuid,nodev usr
for name in bin sbin lib lib32 lib64; do
    if [ -L "/$name" ]; then
        ln -s "$(readlink "/$name")" "$name"
    elif [ -d "/$name" ]; then
        mkdir "$name"
        mount --bind "/$name" "$name"
        mount -o remount,bind,ro,nosuid,nodev "$name"
    fi
done
echo 'fuzz:x:64321:64321::/work:/bin/sh' >etc/passwd
echo 'fuzz:x:64321:' >etc/group
: >ringd
mount --bind "$ringd" ringd
mount -o remount,bind,ro,nosuid,nodev ringd
: >dev/null
mount --bind /dev/null dev/null
chmod 1777 tmp
chown 64321:64321 work

# The daemon alone leaves the old root behind: the client needs it.
unshare --mount --propagation private -- /bin/sh -c '
    pivot_root . old
    cd /
    mount -t proc -o ro,nosuid,nodev,noexec proc /proc
    umount -l /old
    rmdir /old
    mount -o remount,ro /
    mount -t tmpfs -o size=32m,mode=755,uid=64321,gid=64321,nosuid,nodev tmpfs /work
    mount -t tmpfs -o size=32m,mode=1777,nosuid,nodev tmpfs /tmp
    cd /work
    exec env -i PATH=/usr/bin:/bin setpriv --reuid=64321 --regid=64321 --clear-groups --no-new-privs \
        --bounding-set=-all --inh-caps=-all /ringd serve --listen 127.0.0.1:9000 --disk-reserve-bytes 0 \
        --kill-grace 0.2 --output-linger 0.2 --stdin-write-timeout 0.2 --body-timeout 2 --max-execs 100000
' >"$root.out" 2>"$root.log" &

# It says where it listens once it does; when it ends before, nobody waits for it.
tries=0
until grep -q listening "$root.out"; do
    tries=$((tries + 1))
    if [ "$tries" -gt 200 ]; then
        cat "$root.log" >&2
        exit 1
    fi
    sleep 0.05
done
status=0
"$@" http://127.0.0.1:9000 || status=$?
if grep -i panic "$root.log" >&2; then
    status=1
fi
exit "$status"
