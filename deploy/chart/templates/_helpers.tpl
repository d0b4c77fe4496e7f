{{/* What names the objects that are in no namespace: one release looks at all
namespaces, or several at one each. */}}
{{- define "hotseat.name" -}}
hotseat-controller{{ with .Values.watchNamespace }}-{{ . }}{{ end }}
{{- end }}

{{- define "hotseat.labels" -}}
{{ include "hotseat.selector" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ .Chart.Name }}-{{ .Chart.Version }}
{{- end }}

{{- define "hotseat.selector" -}}
app.kubernetes.io/name: hotseat
app.kubernetes.io/component: controller
{{- end }}

{{- define "hotseat.agentSelector" -}}
app.kubernetes.io/name: hotseat
app.kubernetes.io/component: agent
{{- end }}

{{- define "hotseat.agentLabels" -}}
{{ include "hotseat.agentSelector" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ .Chart.Name }}-{{ .Chart.Version }}
{{- end }}

{{- define "hotseat.frontDoorSelector" -}}
app.kubernetes.io/name: hotseat
app.kubernetes.io/component: frontdoor
{{- end }}

{{- define "hotseat.frontDoorLabels" -}}
{{ include "hotseat.frontDoorSelector" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ .Chart.Name }}-{{ .Chart.Version }}
{{- end }}

{{/* The PriorityClass of launchers whose template names none; empty: none. */}}
{{- define "hotseat.launcherPriority" -}}
{{- if .Values.launcherPriority.className }}
{{- .Values.launcherPriority.className }}
{{- else if .Values.launcherPriority.create -}}
hotseat-launcher{{ with .Values.watchNamespace }}-{{ . }}{{ end }}
{{- end }}
{{- end }}

{{/* (dict "root" $ "name" "controller") */}}
{{- define "hotseat.image" -}}
{{ .root.Values.image.registry }}/{{ .name }}:{{ .root.Values.image.tag | default .root.Chart.AppVersion }}
{{- end }}

{{- define "hotseat.user" -}}
system:serviceaccount:{{ .Release.Namespace }}:hotseat-controller
{{- end }}

{{/* Whether the API server asks the controller: not empty. */}}
{{- define "hotseat.admission" -}}
{{- if and .Values.controller.enabled .Values.admissionWebhook.enabled (not .Values.watchNamespace) }}yes{{ end }}
{{- end }}

{{/* Fails where another release looks at the same namespaces. */}}
{{- define "hotseat.alone" -}}
{{- range (lookup "rbac.authorization.k8s.io/v1" "ClusterRole" "" "").items }}
{{- $other := dig "metadata" "annotations" "meta.helm.sh/release-namespace" "" . }}
{{- $watches := dig "metadata" "annotations" "hotseat.dev/watches" "" . }}
{{- if and $watches $other (ne $other $.Release.Namespace) }}
{{- $mine := $.Values.watchNamespace | default "*" }}
{{- if or (eq $watches "*") (eq $mine "*") (eq $watches $mine) }}
{{- fail (printf "the release %s in namespace %s has hotseat look at %s already: uninstall that one first, or have each look at a namespace of its own (watchNamespace); where it is gone with its namespace, install it there again, and uninstall it" (dig "metadata" "annotations" "meta.helm.sh/release-name" "" .) $other (eq $watches "*" | ternary "all namespaces" (printf "namespace %s" $watches))) }}
{{- end }}
{{- end }}
{{- end }}
{{- end }}

{{/* Fails where this release would lose its controller, which has finalizers on Pods:
what lets go of them goes with it. */}}
{{- define "hotseat.stays" -}}
{{- if .Release.IsUpgrade }}
{{- $there := lookup "apps/v1" "Deployment" .Release.Namespace "hotseat-controller" }}
{{- if eq .Release.Name (dig "metadata" "annotations" "meta.helm.sh/release-name" "" $there) }}
{{- fail "controller.enabled: this release has a controller, which holds requesters and launchers by finalizers: uninstall it, which lets go of them, and install it without a controller" }}
{{- end }}
{{- end }}
{{- end }}

{{/* Fails where a namespace is not there; without a cluster nobody knows. (list namespace value) */}}
{{- define "hotseat.namespace" -}}
{{- if and (lookup "v1" "Namespace" "" "default") (not (lookup "v1" "Namespace" "" (index . 0))) }}
{{- fail (printf "%s: there is no namespace %s: make it first" (index . 1) (index . 0)) }}
{{- end }}
{{- end }}

{{- define "hotseat.podSecurity" -}}
runAsNonRoot: true
runAsUser: 65532
runAsGroup: 65532
seccompProfile: {type: RuntimeDefault}
{{- end }}

{{- define "hotseat.containerSecurity" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities: {drop: [ALL]}
{{- end }}

{{/* Hooks are no Pods of the controller, which its Deployment and Service select. */}}
{{- define "hotseat.hookLabels" -}}
app.kubernetes.io/name: hotseat
app.kubernetes.io/component: hook
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
{{- end }}

{{/* (list when weight) */}}
{{- define "hotseat.hook" -}}
helm.sh/hook: {{ index . 0 }}
helm.sh/hook-weight: {{ index . 1 | quote }}
helm.sh/hook-delete-policy: before-hook-creation,hook-succeeded
{{- end }}

{{/* Whether who asks may administer the launchers of the namespace, which RBAC decides: CEL. It is asked last,
and for what would be refused otherwise alone. */}}
{{- define "hotseat.admin" -}}
authorizer.group('hotseat.dev').resource('launchers').namespace(request.namespace).check('administer').allowed()
{{- end }}

{{/* Whether who asks is Kubernetes itself: its controllers, its scheduler or a kubelet: CEL. */}}
{{- define "hotseat.kubernetes" -}}
request.userInfo.username in ['system:kube-controller-manager', 'system:kube-scheduler'] || has(request.userInfo.groups) && request.userInfo.groups.exists(g, g in ['system:nodes', 'system:serviceaccounts:kube-system'])
{{- end }}

{{/* Whether who asks is neither the controller, nor the hook that lets go of all
Pods, nor an administrator by name: CEL. */}}
{{- define "hotseat.notAdmin" -}}
{{- $users := concat (list (include "hotseat.user" .) (printf "system:serviceaccount:%s:hotseat-let-go" .Release.Namespace)) .Values.admissionPolicy.admins.users -}}
!(request.userInfo.username in {{ toJson $users }}) && !(has(request.userInfo.groups) && request.userInfo.groups.exists(g, g in {{ toJson .Values.admissionPolicy.admins.groups }}))
{{- end }}

{{/* Whether requesters get what they lack when they are created: not empty. */}}
{{- define "hotseat.requesterDefaults" -}}
{{- if and .Values.controller.enabled .Values.requesterDefaults.enabled (.Capabilities.APIVersions.Has "admissionregistration.k8s.io/v1/MutatingAdmissionPolicy") }}yes{{ end }}
{{- end }}

{{/* Whether a Pod asks for an inference server, and does not have the labels of a launcher: CEL. */}}
{{- define "hotseat.asksForAServer" -}}
object != null && has(object.metadata.annotations) && ['dual-pod.llm-d.ai/server-patch', 'dual-pods.llm-d.ai/server-patch', 'dual-pod.llm-d.ai/inference-server-config', 'dual-pods.llm-d.ai/inference-server-config'].exists(k, k in object.metadata.annotations) && !(has(object.metadata.labels) && 'hotseat.dev/launcher-config' in object.metadata.labels && 'app.kubernetes.io/component' in object.metadata.labels && object.metadata.labels['app.kubernetes.io/component'] == 'launcher')
{{- end }}
