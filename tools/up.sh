#!/bin/sh
# From nothing to a sample function that answers. Run again, it changes nothing.
# usage: OPRC=… IMAGE=… tools/up.sh [OPTIONS OF oprc sandbox up]
set -eu

"$OPRC" sandbox up --prometheus "$@"
"$OPRC" sandbox load-image "$IMAGE" >/dev/null
"$OPRC" sandbox kubectl -- apply -f examples/hello-fn/deployment.yaml >/dev/null
"$OPRC" sandbox kubectl -- rollout status deployment/hello --timeout=60s >/dev/null
address=$("$OPRC" sandbox kubectl -- get service hello -o 'jsonpath={.spec.clusterIP}')

if "$OPRC" sandbox list | grep -q '^oprc .*simulated'; then
    echo "The sample function is deployed on a simulated node: nothing runs there that could answer."
else
    echo "The sample function answers:"
    echo "  curl http://$address/?name=you"
    printf '  '
    curl --silent --show-error --fail --max-time 5 --retry 5 --retry-connrefused "http://$address/?name=you"
    echo
fi
cat <<END
How to go on:
  make status                            how everything is
  $OPRC sandbox kubectl -- get pods     kubectl on the cluster
  export KUBECONFIG=\$($OPRC sandbox kubeconfig)
  make down                              end it all
END
