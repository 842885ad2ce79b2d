package deploy

import (
	"bytes"
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"
)

// TestManifest: three objects whose parts agree. pip's kubernetes-validate takes them for 1.28 and 1.34
// (bench/golden/manifest.sh), which are the schemas that API servers publish.
func TestManifest(t *testing.T) {
	m := Manifest{Name: "train", Image: "lf:1", Hosts: 3, GPUs: 2, Memory: "64Gi", Claim: "data",
		Mount: "/data",
		Run:   []byte("train: {steps: 7}\n"), Retries: 2, Secret: "keys", Namespace: "lab"}
	out, err := m.Write()
	require.NoError(t, err)
	var job struct {
		Kind     string
		Metadata struct{ Namespace string }
		Data     map[string]string
		Spec     struct {
			Completions, Parallelism, BackoffLimit int
			CompletionMode                         string
			PodFailurePolicy                       struct {
				Rules []struct{ OnExitCodes struct{ Values []int } }
			}
			Template struct {
				Spec struct {
					Containers []struct {
						Env       []struct{ Name, Value string }
						EnvFrom   []struct{ SecretRef struct{ Name string } }
						Resources struct{ Limits, Requests map[string]any }
					}
				}
			}
		}
	}
	kinds, run, d := []string{}, "", yaml.NewDecoder(bytes.NewReader(out))
	for range 3 {
		job.Metadata.Namespace = ""
		var any map[string]any
		require.NoError(t, d.Decode(&any))
		text, err := json.Marshal(any) // whose names of fields are found in any case
		require.NoError(t, err)
		require.NoError(t, json.Unmarshal(text, &job))
		require.Equal(t, "lab", job.Metadata.Namespace)
		if kinds = append(kinds, job.Kind); job.Kind == "ConfigMap" {
			run = job.Data["run.yaml"]
		}
	}
	require.Equal(t, []string{"ServiceAccount", "ConfigMap", "Job"}, kinds)
	require.Equal(t, "train: {steps: 7}\n", run)
	require.Equal(t, []int{3, 3, 6}, []int{job.Spec.Completions, job.Spec.Parallelism,
		job.Spec.BackoffLimit})
	require.Equal(t, "Indexed", job.Spec.CompletionMode)
	require.Contains(t, string(out), "type: DisruptionTarget", "a host that is drained is no fault of the run's")
	require.Equal(t, []int{2, 3, 6}, job.Spec.PodFailurePolicy.Rules[1].OnExitCodes.Values)
	c := job.Spec.Template.Spec.Containers[0]
	require.Contains(t, c.Env, struct{ Name, Value string }{EnvHosts, "3"})
	require.Contains(t, c.Env, struct{ Name, Value string }{EnvMeet, "/data"})
	require.Equal(t, "keys", c.EnvFrom[0].SecretRef.Name)
	require.Equal(t, map[string]any{"nvidia.com/gpu": 2.0, "memory": "64Gi"}, c.Resources.Limits)
	require.Equal(t, map[string]any{"memory": "64Gi"}, c.Resources.Requests)
}
