#!/usr/bin/env bash
# Check the Helm chart with all of its parts on, and compare what it gives with the
# plain manifests that are committed. The argument is helm.
set -euo pipefail
cd "$(dirname "$0")/.."
made=$(mktemp -d)
trap 'rm -rf "$made"' EXIT

"$1" lint --strict --kube-version 1.30 deploy/helm/fairlead \
	--set reflector.enabled=true,reflector.routerID=10.0.0.109,reflector.clients={172.16.0.0/16},reflector.routers={10.0.0.110} \
	--set cleanup.enabled=true,createNamespace=true,gatewayAPI.enabled=true,balancers[0].name=web,balancers[0].service=default/web \
	--set 'bgp.peers={10.0.0.109},bgp.passwordSecret=bgp,agent.roles={balancer,server,proxy},agent.apiServer.host=10.0.0.1'
scripts/manifests.sh "$1" "$made"
diff -r "$made" deploy/manifests || {
	echo "not what the chart gives; run: make manifests" >&2
	exit 1
}
