#!/bin/sh
# Generates the CRD and the tables of settings, in place or below FOLDER.
# usage: tools/generate.sh [FOLDER]
set -eu
to=${1:-.}
. tools/static.sh

mkdir -p "$to/k8s/crds" "$to/docs"
cargo build --quiet --workspace --bins
"$built/crdgen" >"$to/k8s/crds/classruntimes.gen.yaml"
settings() { # settings PROGRAM PAGE
    "$built/$1" settings >"$to/settings.md"
    awk -v table="$to/settings.md" '
        /<!-- settings:begin -->/ { print; while ((getline line < table) > 0) print line; skip = 1 }
        /<!-- settings:end -->/ { skip = 0 }
        !skip && !/<!-- settings:begin -->/ { print }
    ' "$2" >"$to/$2.new"
    mv "$to/$2.new" "$to/$2"
    rm "$to/settings.md"
}
settings oprc-crm docs/configuration.md
settings oprc-pm docs/configuration-pm.md
