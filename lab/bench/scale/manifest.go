package scale

const imageName = "localhost/fairlead:scale"

// manifest is a Deployment of load balancers in pods on the router's segment. Their Service
// is in a folder: what is measured is how Kubernetes starts and stops pods.
const manifest = `apiVersion: node.k8s.io/v1
kind: RuntimeClass
metadata: {name: flat}
handler: flat
---
apiVersion: v1
kind: ConfigMap
metadata: {name: services}
data:
  web.yaml: |
    apiVersion: v1
    kind: Service
    metadata: {name: web, annotations: {fairlead.io/addresses: 10.1.1.1, fairlead.io/health-check: none}}
    spec: {type: LoadBalancer, ports: [{port: 80}]}
    ---
    apiVersion: discovery.k8s.io/v1
    kind: EndpointSlice
    metadata: {name: web, labels: {kubernetes.io/service-name: web}}
    addressType: IPv4
    ports: [{port: 80}]
    endpoints: [{addresses: [172.30.0.10]}]
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: balancer}
spec:
  replicas: 1
  selector: {matchLabels: {app: balancer}}
  template:
    metadata: {labels: {app: balancer}}
    spec:
      runtimeClassName: flat
      terminationGracePeriodSeconds: 10
      topologySpreadConstraints:
        - {maxSkew: 1, topologyKey: kubernetes.io/hostname, whenUnsatisfiable: ScheduleAnyway, labelSelector: {matchLabels: {app: balancer}}}
      containers:
        - name: agent
          image: ` + imageName + `
          args: [agent, --manifest-dir=/etc/fairlead/services, --peer=172.30.0.2, --bfd=false, --bpffs=/run/fairlead/bpf]
          securityContext: {privileged: true}
          volumeMounts:
            - {name: services, mountPath: /etc/fairlead/services}
      volumes:
        - {name: services, configMap: {name: services}}
`
