#!/bin/sh
# Writes what is generated from the code, into a folder where one is given: to compare it.
# usage: tools/generate.sh [FOLDER]
set -eu
to=${1:-.}
. tools/static.sh

mkdir -p "$to/k8s/crds" "$to/docs"
cargo build --quiet -p oprc-crm
"$built/crdgen" >"$to/k8s/crds/classruntimes.gen.yaml"
"$built/oprc-crm" settings >"$to/settings.md"
awk -v table="$to/settings.md" '
    /<!-- settings:begin -->/ { print; while ((getline line < table) > 0) print line; skip = 1 }
    /<!-- settings:end -->/ { skip = 0 }
    !skip && !/<!-- settings:begin -->/ { print }
' docs/configuration.md >"$to/docs/configuration.md.new"
mv "$to/docs/configuration.md.new" "$to/docs/configuration.md"
rm "$to/settings.md"
