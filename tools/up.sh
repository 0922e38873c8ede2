#!/bin/sh
# From nothing to a sample function that answers. Run again, it changes nothing.
# usage: PROGRAM=… IMAGE=… NAME=… tools/up.sh [OPTIONS OF oprc sandbox up]
set -eu

"$PROGRAM" sandbox up --name "$NAME" --prometheus "$@"
"$PROGRAM" sandbox load-image --name "$NAME" "$IMAGE" >/dev/null
kubectl() {
    "$PROGRAM" sandbox kubectl --name "$NAME" -- "$@"
}
kubectl apply -f examples/hello-fn/deployment.yaml >/dev/null
kubectl rollout status deployment/hello --timeout=60s >/dev/null
address=$(kubectl get service hello -o 'jsonpath={.spec.clusterIP}')

if "$PROGRAM" sandbox list | grep -q "^$NAME .*simulated"; then
    echo "The sample function is deployed on a simulated node: nothing runs there that could answer."
else
    echo "The sample function answers:"
    echo "  curl 'http://$address/?name=you'"
    printf '  '
    curl --silent --show-error --fail --noproxy '*' --max-time 5 --retry 10 --retry-delay 1 --retry-all-errors "http://$address/?name=you"
    echo
fi
cat <<END
How to go on:
  make status    how everything is
  make down      end it all
  $PROGRAM sandbox kubectl --name $NAME -- get pods
  export KUBECONFIG=\$($PROGRAM sandbox kubeconfig --name $NAME)
END
