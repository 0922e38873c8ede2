#!/bin/sh
# Writes an image with counter.py and the Python of this machine: the interpreter, its standard library and
# the shared libraries of both, each at its own path.
# usage: examples/counter-py/image.sh OPRC ARCHIVE
set -eu
oprc=$1 archive=$2
root=$(mktemp -d)
trap 'rm -r "$root"' EXIT

python=$(python3 -c 'import os, sys; print(os.path.realpath(sys.executable))')
library=$(python3 -c 'import sysconfig; print(sysconfig.get_path("stdlib"))')

mkdir -p "$root$library"
# Without tests, other packages, and what needs a screen or a compiler.
tar -C "$library" -ch --exclude=__pycache__ --exclude='*-packages' --exclude='config-*' --exclude=test \
    --exclude=tests --exclude=idlelib --exclude=lib2to3 --exclude=tkinter --exclude=turtledemo \
    --exclude=ensurepip --exclude='_tkinter*' --exclude='*.a' . | tar -C "$root$library" -x

# `ldd` lists "NAME => PATH (ADDRESS)", and the loader as "PATH (ADDRESS)".
for file in "$python" "$library"/lib-dynload/*.so; do
    case $file in
    */_tkinter*) ;;
    *) ldd "$file" 2>/dev/null | sed -n 's/^\(.* => \)\{0,1\}[[:space:]]*\(\/[^ ]*\) (0x.*/\2/p' ;;
    esac
done | sort -u | while read -r file; do
    mkdir -p "$root$(dirname "$file")"
    cp -L "$file" "$root$file"
done
mkdir -p "$root$(dirname "$python")"
cp "$python" "$root$python"
cp "$(dirname "$0")/counter.py" "$root/counter.py"

# Unbuffered, so that each line is logged at once; without the packages of users.
"$oprc" sandbox image --name oprc.local/counter-py:dev --root "$root" "$python" "$archive" -- \
    -u -s -B /counter.py
