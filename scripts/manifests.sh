#!/usr/bin/env bash
# Render the plain manifests from the Helm chart into a directory. The first argument is
# helm, the second the directory.
set -euo pipefail
cd "$(dirname "$0")/.."
helm=$1 to=$2
mkdir -p "$to"/{cleanup,gateway,proxy,vdn}

# render FILE TEMPLATE VALUE...: writes one manifest, without what is only for Helm.
render() {
	local file=$1 template=$2
	shift 2
	{
		echo "# Generated from deploy/helm/fairlead by make manifests. Do not edit."
		"$helm" template fairlead deploy/helm/fairlead --namespace fairlead --kube-version 1.30 --show-only "templates/$template.yaml" "$@" |
			grep -v -e '^# Source: ' -e 'app.kubernetes.io/managed-by'
	} >"$to/$file.yaml"
}

render namespace namespace --set createNamespace=true
for name in rbac admission agent controller; do
	render $name $name
done
render proxy/agent agent --set 'agent.roles={balancer,dsr,proxy}'
render cleanup/cleanup cleanup --set cleanup.enabled=true
render gateway/gateway gateway --set gatewayAPI.enabled=true
render vdn/vdn vdn --set vdn.enabled=true
render vdn/vdn-etcd vdn --set 'vdn.enabled=true,vdn.etcd.endpoints={https://etcd.example:2379},vdn.etcd.tlsSecret=fairlead-vdn-etcd,vdn.accessSecret=fairlead-vdn-access,vdn.tokenSecret=,vdn.node.tokenSecret=fairlead-vdn-node-token'
