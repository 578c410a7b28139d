#!/usr/bin/env bash
# Check the Helm chart with all of its features enabled, check that it rejects invalid
# values, and compare its output with the committed plain manifests. The argument is helm.
set -euo pipefail
cd "$(dirname "$0")/.."
made=$(mktemp -d)
trap 'rm -rf "$made"' EXIT

"$1" lint --strict --kube-version 1.30 deploy/helm/fairlead \
	--set reflector.enabled=true,reflector.routerID=10.0.0.109,reflector.clients={172.16.0.0/16},reflector.routers={10.0.0.110} \
	--set cleanup.enabled=true,createNamespace=true,gatewayAPI.enabled=true,metrics.enabled=true,metrics.backends=true,metrics.podMonitor.enabled=true,metrics.rules.enabled=true,metrics.dashboard.enabled=true,balancers[0].name=web,balancers[0].service=default/web,balancers[0].interface=net1,balancers[0].network=default/routers,nodeKey.secret=node,nodeKey.require=true \
	--set 'bgp.peers={10.0.0.109},bgp.passwordSecret=bgp,bgp.peerSecrets={other},controller.requireClass=true,cloud.provider=aws,cloud.aws.routeTables={rtb-0123456789abcdef0},cloud.webhook.secret=webhook,agent.roles={balancer,dsr,proxy},agent.apiServer.host=10.0.0.1,vdn.enabled=true,vdn.controller.clusterIP=10.96.0.73,vdn.node.uplinks={eth1=10G,eth2=1.5G}'

# refuse HELM FIELD VALUE: checks that the value is rejected with the name of its field.
refuse() {
	if said=$("$1" template fairlead deploy/helm/fairlead --kube-version 1.30 --set "$3" 2>&1) || [[ $said != *"$2"* ]]; then
		echo "the chart accepts the value $3, or its error does not name $2: $said" >&2
		exit 1
	fi
}
refuse "$1" agnet 'agnet.enabled=true'
refuse "$1" /agent/roles/0 'agent.roles={king}'
refuse "$1" /agent/interfaces 'agent.interfaces=eth0'
refuse "$1" /agent/drainTimeout 'agent.drainTimeout=25'
refuse "$1" /agent/gracefulShutdownPeriod 'agent.gracefulShutdownPeriod=2'
refuse "$1" /metrics/port 'metrics.port=70000'
refuse "$1" metrics.podMonitor.enabled 'metrics.podMonitor.enabled=true'
refuse "$1" /bgp/localASN 'bgp.localASN=0'
refuse "$1" /bgp/peers/0 'bgp.peers={router}'
refuse "$1" /cloud/provider 'cloud.provider=azure'
refuse "$1" /cloud/owner 'cloud.owner=Shop'
refuse "$1" /vdn/node/uplinks/0 'vdn.node.uplinks={eth1}'
refuse "$1" /vdn/controller/url 'vdn.controller.url=http://10.0.0.1:7473'
refuse "$1" /vdn/etcd/endpoints/0 'vdn.etcd.endpoints={http://10.0.0.1:2379}'
refuse "$1" vdn.etcd.endpoints 'vdn.enabled=true,vdn.controller.replicas=3'
refuse "$1" vdn.node.tokenSecret 'vdn.enabled=true,vdn.tokenSecret=,vdn.accessSecret=x'
refuse "$1" "'service'" 'balancers[0].name=web'
refuse "$1" 'balancers[web].network' 'balancers[0].name=web,balancers[0].service=default/web,balancers[0].interface=net1'
refuse "$1" /agent/acceptFrom/0 'agent.acceptFrom={everybody}'

# The chart has the CRDs, so that an upgrade changes them, and Helm never deletes one.
"$1" template fairlead deploy/helm/fairlead --kube-version 1.30 --show-only templates/crds.yaml >"$made/crds"
for crd in deploy/crds/*.yaml; do
	name=$(sed -n 's/^  name: //p' "$crd")
	grep -q "^  name: $name\$" "$made/crds" || { echo "the chart lacks the CRD $name" >&2 && exit 1; }
done
if [[ $(grep -c '^    helm.sh/resource-policy: keep$' "$made/crds") != $(grep -c '^kind: CustomResourceDefinition$' "$made/crds") ]]; then
	echo "helm uninstall would delete CRDs of the chart, and with them all resources" >&2
	exit 1
fi
rm "$made/crds"

scripts/manifests.sh "$1" "$made"
diff -r "$made" deploy/manifests || {
	echo "deploy/manifests does not match the chart; run: make manifests" >&2
	exit 1
}
