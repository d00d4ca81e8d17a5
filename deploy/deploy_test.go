// Package deploy holds what runs a server elsewhere. These tests are what can be said of it without a cluster.
package deploy

import (
	"bytes"
	"errors"
	"io"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/azserve/azserve/cli"
	"github.com/stretchr/testify/require"
	"gopkg.in/yaml.v3"
)

// object is any object of YAML.
type object = map[string]any

func manifests(t *testing.T) map[string]object {
	data, err := os.ReadFile("kubernetes/azserve.yaml")
	require.NoError(t, err)
	out := map[string]object{}
	decoder := yaml.NewDecoder(bytes.NewReader(data))
	for {
		var o object
		err := decoder.Decode(&o)
		if errors.Is(err, io.EOF) {
			return out
		}
		require.NoError(t, err)
		out[o["kind"].(string)] = o
	}
}

// at goes down into an object by keys.
func at(t *testing.T, o any, path string) any {
	for key := range strings.SplitSeq(path, ".") {
		if list, ok := o.([]any); ok {
			o = list[0]
		}
		m, ok := o.(object)
		require.True(t, ok, "%s: no object at %s", path, key)
		require.Contains(t, m, key, path)
		o = m[key]
	}
	return o
}

func seconds(t *testing.T, text any) float64 {
	d, err := time.ParseDuration(text.(string))
	require.NoError(t, err)
	return d.Seconds()
}

// requireFlags: each key of a file of settings is a flag that azserve serve knows, with a value that it takes.
func requireFlags(t *testing.T, data string) object {
	var settings object
	require.NoError(t, yaml.Unmarshal([]byte(data), &settings))
	var help, errs bytes.Buffer
	require.Zero(t, cli.Main([]string{"serve", "--help"}, strings.NewReader(""), &help, &errs), errs.String())
	for name := range settings {
		require.Regexp(t, regexp.MustCompile(`(?m)^\s+--`+regexp.QuoteMeta(name)+`\s`), help.String())
	}
	return settings
}

func TestKubernetes(t *testing.T) {
	m := manifests(t)
	for _, kind := range []string{
		"ConfigMap", "Deployment", "Service", "PodDisruptionBudget", "HorizontalPodAutoscaler", "NetworkPolicy",
	} {
		require.Contains(t, m, kind)
		require.NotEmpty(t, at(t, m[kind], "apiVersion"))
		require.NotEmpty(t, at(t, m[kind], "metadata.name"))
	}
	settings := requireFlags(t, at(t, m["ConfigMap"], "data").(object)["serve.yaml"].(string))
	d := m["Deployment"]
	labels := at(t, d, "spec.template.metadata.labels")
	require.Equal(t, labels, at(t, d, "spec.selector.matchLabels"))
	require.Equal(t, labels, at(t, m["Service"], "spec.selector"))
	require.Equal(t, labels, at(t, m["PodDisruptionBudget"], "spec.selector.matchLabels"))
	require.Equal(t, labels, at(t, m["NetworkPolicy"], "spec.podSelector.matchLabels"))
	require.Equal(t, "None", at(t, m["Service"], "spec.clusterIP"), "clients balance by themselves")
	require.Equal(t, at(t, d, "metadata.name"), at(t, m["HorizontalPodAutoscaler"], "spec.scaleTargetRef.name"))

	pod := at(t, d, "spec.template.spec")
	require.Equal(t, true, at(t, pod, "securityContext.runAsNonRoot"))
	require.Equal(t, true, at(t, pod, "containers.securityContext.readOnlyRootFilesystem"))
	require.Equal(t, false, at(t, pod, "containers.securityContext.allowPrivilegeEscalation"))
	for _, probe := range []string{"startupProbe.grpc.port", "readinessProbe.grpc.port",
		"livenessProbe.tcpSocket.port"} {
		require.NotEmpty(t, at(t, pod, "containers."+probe))
	}
	require.Equal(t, "azserve.v1.Search", at(t, pod, "containers.readinessProbe.grpc.service"))
	require.NotEmpty(t, at(t, pod, "containers.resources.requests.cpu"))
	require.NotEmpty(t, at(t, pod, "containers.resources.limits.memory"))
	ends := seconds(t, settings["grace"]) + seconds(t, settings["drain-delay"])
	require.Less(t, ends, float64(at(t, pod, "terminationGracePeriodSeconds").(int)), "killed before it has drained")
	mounted := map[any]bool{}
	for _, v := range at(t, pod, "containers.volumeMounts").([]any) {
		mounted[v.(object)["name"]] = true
	}
	for _, v := range at(t, pod, "volumes").([]any) {
		require.True(t, mounted[v.(object)["name"]], "%v isn't mounted", v)
	}
	listen := at(t, settings, "listen").([]any)[0].(string)
	require.True(t, strings.HasSuffix(listen, ":50051"))
}

func TestSystemd(t *testing.T) {
	data, err := os.ReadFile("azserve.service")
	require.NoError(t, err)
	unit := string(data)
	for _, want := range []string{"KillSignal=SIGTERM", "NoNewPrivileges=yes", "ProtectSystem=strict",
		"DynamicUser=yes"} {
		require.Contains(t, unit, want)
	}
	settings, err := os.ReadFile("serve.yaml")
	require.NoError(t, err)
	s := requireFlags(t, string(settings))
	stop := regexp.MustCompile(`TimeoutStopSec=(\d+)`).FindStringSubmatch(unit)
	require.Len(t, stop, 2)
	require.Less(t, seconds(t, s["grace"]), seconds(t, stop[1]+"s"))
	verify, err := exec.LookPath("systemd-analyze")
	if err != nil {
		t.Skip("the rest needs systemd-analyze")
	}
	unit = regexp.MustCompile(`ExecStart=\S+`).ReplaceAllString(unit, "ExecStart=/bin/true")
	path := t.TempDir() + "/azserve.service"
	require.NoError(t, os.WriteFile(path, []byte(unit), 0o600))
	out, err := exec.Command(verify, "verify", "--recursive-errors=no", path).CombinedOutput()
	require.NoError(t, err, string(out))
}

func TestContainerfile(t *testing.T) {
	data, err := os.ReadFile("Containerfile")
	require.NoError(t, err)
	text := string(data)
	require.Contains(t, text, "CGO_ENABLED=0 go build")
	require.Regexp(t, `(?m)^USER [1-9]`, text)
	entry := regexp.MustCompile(`(?m)^ENTRYPOINT (\[.*\])$`).FindStringSubmatch(text)
	require.Len(t, entry, 2)
	var args []string
	require.NoError(t, yaml.Unmarshal([]byte(entry[1]), &args))
	require.Equal(t, []string{"/azserve", "serve"}, args[:2])
	var out, errs bytes.Buffer
	require.Zero(t, cli.Main(append(args[1:], "--help"), strings.NewReader(""), &out, &errs), errs.String())
	module, err := os.ReadFile("../go.mod")
	require.NoError(t, err)
	version := regexp.MustCompile(`(?m)^go (\d+\.\d+)`).FindSubmatch(module)
	require.Contains(t, text, "golang:"+string(version[1])+" ")
}
