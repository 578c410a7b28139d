{{/* Labels by which pods are found, and which never change. */}}
{{- define "fairlead.selector" -}}
app.kubernetes.io/name: fairlead
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "fairlead.labels" -}}
{{ include "fairlead.selector" . }}
app.kubernetes.io/version: {{ .Values.image.tag | default .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
{{- end }}

{{- define "fairlead.image" -}}
{{ .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}
{{- end }}

{{/* Whether an agent balances: not empty where one does. */}}
{{- define "fairlead.balances" -}}
{{- if or .Values.balancers (and .Values.agent.enabled (has "balancer" .Values.agent.roles)) }}yes{{ end }}
{{- end }}

{{/* From whom backends accept tunnelled packets: the chart's load balancers, unless agent.acceptFrom says otherwise. */}}
{{- define "fairlead.acceptFrom" -}}
{{- if not (has "dsr" .Values.agent.roles) }}
{{- else if .Values.agent.acceptFrom }}
{{- join "," .Values.agent.acceptFrom -}}
{{- else if include "fairlead.balances" . }}
{{- printf "%s/fairlead.io/balancers=true" .Release.Namespace -}}
{{- end }}
{{- end }}

{{/* What agents with agent.roles may do. internal/privilege/table.go has the reasons. */}}
{{- define "fairlead.agentCapabilities" -}}
{{- $a := .Values.agent -}}
{{- $all := list "NET_ADMIN" -}}
{{- if or (has "proxy" $a.roles) (and (has "balancer" $a.roles) (ne $a.dataplane "ipvs")) }}
{{- $all = append $all "SYS_ADMIN" -}}
{{- else if has "dsr" $a.roles }}
{{- $all = concat $all (list "BPF" "PERFMON") -}}
{{- end }}
{{- if and (has "balancer" $a.roles) .Values.l2.interfaces }}
{{- $all = append $all "NET_RAW" -}}
{{- end }}
{{- printf "[%s]" ($all | sortAlpha | join ", ") -}}
{{- end }}

{{/* What both containers of the cleanup have. */}}
{{- define "fairlead.cleanup" -}}
image: {{ include "fairlead.image" . }}
imagePullPolicy: {{ .Values.image.pullPolicy }}
env:
  - name: FAIRLEAD_PROC_SYS_NET
    value: /host/proc/sys/net
securityContext:
  allowPrivilegeEscalation: false
  readOnlyRootFilesystem: true
  runAsUser: 0
  capabilities:
    drop: [ALL]
    add: [NET_ADMIN, SYS_ADMIN]
volumeMounts:
  - {name: bpffs, mountPath: /sys/fs/bpf}
  - {name: sysctl, mountPath: /host/proc/sys/net}
{{- end }}

{{/* Whether the Gateway API is served: a word, or nothing. */}}
{{- define "fairlead.gatewayAPI" -}}
{{- if eq (toString .Values.gatewayAPI.enabled) "true" }}yes
{{- else if and (eq (toString .Values.gatewayAPI.enabled) "auto") (or (.Capabilities.APIVersions.Has "gateway.networking.k8s.io/v1/TCPRoute") (.Capabilities.APIVersions.Has "gateway.networking.k8s.io/v1alpha2/TCPRoute")) }}yes
{{- end }}
{{- end }}

{{/* Flags, ports and probes of a daemon. of is its port, host whether it is on the host network, where the kubelet reaches it at the loopback address. */}}
{{- define "fairlead.monitoringArgs" -}}
{{- if .root.Values.metrics.enabled }}
- --metrics-address=:{{ int .of }}
{{- else }}
- --probe-address={{ if .host }}127.0.0.1{{ end }}:{{ int .of }}
{{- end }}
{{- end }}

{{/* Startup and liveness probe. The argument is where the daemon answers: httpGet without its path. */}}
{{- define "fairlead.liveness" -}}
startupProbe:
  httpGet: {{ toJson (merge (dict "path" "/livez") .) }}
  periodSeconds: 1
  failureThreshold: 300
livenessProbe:
  httpGet: {{ toJson (merge (dict "path" "/livez") .) }}
  periodSeconds: 10
  timeoutSeconds: 10
  failureThreshold: 6
{{- end }}

{{- define "fairlead.probes" -}}
{{- $to := dict "port" (int .of) -}}
{{- if .host }}{{ $_ := set $to "host" "127.0.0.1" }}{{ end -}}
{{- if .root.Values.metrics.enabled }}
ports:
  - {name: metrics, containerPort: {{ int .of }}}
{{- end }}
{{ include "fairlead.liveness" $to }}
readinessProbe:
  httpGet: {{ toJson (merge (dict "path" "/readyz") $to) }}
  periodSeconds: 5
  timeoutSeconds: 5
{{- end }}
