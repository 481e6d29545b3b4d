{{/* What belongs to the release: of the chart's own objects, and what a selector asks for. */}}
{{- define "offsetstream.selector" -}}
app.kubernetes.io/name: offsetstream
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "offsetstream.labels" -}}
{{ include "offsetstream.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ .Chart.Name }}-{{ .Chart.Version }}
{{- end }}
