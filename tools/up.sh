#!/bin/sh
# From nothing to a sample class that answers. Run again, it changes nothing.
# usage: PROGRAM=… IMAGES=… NAME=… tools/up.sh [OPTIONS OF oprc sandbox up]
set -eu

"$PROGRAM" sandbox up --name "$NAME" --prometheus "$@"
for image in $IMAGES; do
    "$PROGRAM" sandbox load-image --name "$NAME" "target/$image.oci.tar" >/dev/null
done
kubectl() {
    "$PROGRAM" sandbox kubectl --name "$NAME" -- "$@"
}
kubectl apply --server-side -f k8s/crds >/dev/null
kubectl wait --for=condition=Established crd/classruntimes.oaas.io --timeout=30s >/dev/null
kubectl apply -f k8s/rbac/crm-rbac.yaml -f k8s/deploy/crm.yaml >/dev/null

if "$PROGRAM" sandbox list | grep -q "^$NAME .*simulated"; then
    echo "The node is simulated: CRM is deployed, and nothing runs there that could answer."
    echo "To try it: KUBECONFIG=\$($PROGRAM sandbox kubeconfig --name $NAME) cargo run -p oprc-crm"
else
    kubectl -n oaas-system rollout status deployment/oprc-crm --timeout=120s >/dev/null
    crm=http://$(kubectl -n oaas-system get service oprc-crm -o 'jsonpath={.spec.clusterIP}'):8088
    "$PROGRAM" unit deploy --crm "$crm" examples/hello-class/unit.yaml
    address=$(kubectl get service hello--greet -o 'jsonpath={.spec.clusterIP}')
    echo "The sample class answers:"
    echo "  curl 'http://$address/?name=you'"
    printf '  '
    curl --silent --show-error --fail --noproxy '*' --max-time 5 --retry 10 --retry-delay 1 --retry-all-errors "http://$address/?name=you"
    echo
    echo "CRM answers at $crm:"
    echo "  $PROGRAM unit list --crm $crm"
fi
cat <<END
How to go on:
  make status    how everything is
  make down      end it all
  $PROGRAM sandbox kubectl --name $NAME -- get classruntimes
  export KUBECONFIG=\$($PROGRAM sandbox kubeconfig --name $NAME)
END
