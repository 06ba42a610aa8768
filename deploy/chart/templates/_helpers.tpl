{{/* One line, so that it fits at any depth. */}}
{{- define "gpuplan.labels" -}}
{app.kubernetes.io/part-of: gpuplan{{ range $key, $value := .Values.commonLabels }}, {{ $key }}: {{ $value | quote }}{{ end }}}
{{- end }}

{{/* Of a program's objects and pods: (dict "root" $ "name" "gpuplan-agent" "extra" .Values.agent.podLabels). */}}
{{- define "gpuplan.programLabels" -}}
app.kubernetes.io/name: {{ .name }}
app.kubernetes.io/part-of: gpuplan
{{- range $key, $value := merge (dict) (.extra | default dict) .root.Values.commonLabels }}
{{ $key }}: {{ $value | quote }}
{{- end }}
{{- end }}

{{- define "gpuplan.image" -}}
{{ .Values.image.repository }}{{ if .Values.image.digest }}@{{ .Values.image.digest }}{{ else }}:{{ .Values.image.tag | default .Chart.AppVersion }}{{ end }}
{{- end }}

{{/* As whom the API server knows them. */}}
{{- define "gpuplan.agent.user" -}}
system:serviceaccount:{{ .Release.Namespace }}:{{ .Values.agent.serviceAccount.name }}
{{- end }}
{{- define "gpuplan.controller.user" -}}
system:serviceaccount:{{ .Release.Namespace }}:{{ .Values.controller.serviceAccount.name }}
{{- end }}

{{/* The settings files. What the chart sets itself is no key of `settings`: values.schema.json refuses it there. */}}
{{- define "gpuplan.controller.config" -}}
namespace: {{ .Release.Namespace }}
batchWindowTimeoutSeconds: {{ .Values.batchWindowTimeoutSeconds }}
batchWindowIdleSeconds: {{ .Values.batchWindowIdleSeconds }}
operatorLabels: {{ .Values.operatorLabels }}
metricsAddress: 0.0.0.0
metricsPort: {{ .Values.controller.metricsPort }}
{{- if ne .Values.logFormat "text" }}
logFormat: {{ .Values.logFormat }}
{{- end }}
{{- if not (kindIs "invalid" .Values.mps.userID) }}
mpsUserID: {{ int .Values.mps.userID }}
{{- end }}
{{- if .Values.policies.ackMemoryAsSlices }}
ackMemory: slices
{{- end }}
{{- if .Values.knownMigGeometries }}
knownMigGeometriesFile: /etc/gpuplan/known-mig-geometries.yaml
{{- end }}
{{- if .Values.devicePlugin.config.name }}
nvidiaConfig: {{ toJson .Values.devicePlugin.config }}
{{- end }}
{{- if .Values.scheduler.config.name }}
scheduler:
  config: {{ toJson .Values.scheduler.config }}
{{- end }}
{{- with .Values.controller.settings }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{- define "gpuplan.agent.config" -}}
namespace: {{ .Release.Namespace }}
stateDir: {{ .Values.nodes.stateDir }}
kubeletDir: {{ .Values.nodes.kubeletDir }}
cdiSpecDirs: [/host/etc/cdi, {{ .Values.nodes.cdiDir }}]
{{- with .Values.nodes.containerdConfig }}
containerdConfig: {{ . }}
{{- end }}
procDir: /host/proc
mpsReadOnlyPipes: {{ .Values.mps.readOnlyPipes }}
mpsExclusiveProcess: {{ .Values.mps.exclusiveProcess }}
{{- if .Values.devicePlugin.config.name }}
nvidiaBackend: true
{{- end }}
metricsAddress: 0.0.0.0
metricsPort: {{ .Values.agent.metricsPort }}
{{- if ne .Values.logFormat "text" }}
logFormat: {{ .Values.logFormat }}
{{- end }}
{{- with .Values.agent.settings }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{/* What all pods of a node have in common. */}}
{{- define "gpuplan.anyNodePod" -}}
{{- with .Values.imagePullSecrets }}
imagePullSecrets:
{{- range . }}
  - name: {{ .name }}
{{- end }}
{{- end }}
{{- with .Values.nodes.runtimeClassName }}
runtimeClassName: {{ . }}
{{- end }}
tolerations:
{{- $all := false }}
{{- range .Values.nodes.tolerations }}
  - {{ toJson . }}
{{- $all = or $all (and (not .key) (not .effect) (eq (.operator | default "Equal") "Exists")) }}
{{- end }}
{{- if not $all }}
  - {"key":"gpuplan.dev/changing","operator":"Exists"}
{{- end }}
{{- end }}

{{/* What agent and device plugin have in common: the nodes that they run on. */}}
{{- define "gpuplan.nodePod" -}}
{{- include "gpuplan.anyNodePod" . }}
{{- with .Values.nodes.selector }}
nodeSelector:
  {{- toYaml . | nindent 2 }}
{{- end }}
affinity:
  nodeAffinity:
    requiredDuringSchedulingIgnoredDuringExecution:
      nodeSelectorTerms:
{{- range .Values.nodes.labels }}
        - matchExpressions:
            - {key: {{ .key }}, operator: In, values: {{ toJson .values }}}
{{- end }}
        # The controller's: it stays on a node that is not enabled any more until no pod there holds a device.
        - matchExpressions:
            - {key: gpuplan.dev/node-agent, operator: In, values: ["true"]}
{{- end }}

{{/* What the schema cannot check, each with its name. */}}
{{- define "gpuplan.check" -}}
{{- if not .Values.image.repository }}
{{- fail "image.repository is empty: only the chart of a release names an image. Push one to your registry (deploy/README.md, The image), and add --set image.repository=registry.example.com/gpuplan" }}
{{- end }}
{{- if gt (float64 .Values.batchWindowIdleSeconds) (float64 .Values.batchWindowTimeoutSeconds) }}
{{- fail (printf "batchWindowIdleSeconds (%v) must not be greater than batchWindowTimeoutSeconds (%v)" .Values.batchWindowIdleSeconds .Values.batchWindowTimeoutSeconds) }}
{{- end }}
{{- $silent := .Values.controller.settings.agentSilentSeconds | default 60 }}
{{- $beat := .Values.agent.settings.heartbeatSeconds | default 10 }}
{{- if lt (float64 $silent) (mulf 3 $beat) }}
{{- fail (printf "controller.settings.agentSilentSeconds (%v) must be at least three times agent.settings.heartbeatSeconds (%v): every agent would count as silent" $silent $beat) }}
{{- end }}
{{- $election := .Values.controller.settings.leaderElection | default dict }}
{{- if and (gt (int .Values.controller.replicas) 1) (eq (toString $election.enabled) "false") }}
{{- fail "controller.settings.leaderElection.enabled is false and controller.replicas is greater than 1: all replicas would write. Set controller.replicas to 1, or leave leader election enabled" }}
{{- end }}
{{- end }}
