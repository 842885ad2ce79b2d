package deploy

import (
	"bytes"
	"fmt"
	"path"
	"regexp"
	"strconv"

	"go.yaml.in/yaml/v3"

	"github.com/lfactor/lfactor/configs/exit"
)

// Manifest is a run as an indexed job of Kubernetes: one pod a host, of which the first leads.
type Manifest struct {
	Name, Namespace string
	Image           string
	Hosts           int
	CPU, Memory     string // of a pod, as Kubernetes writes quantities; "" leaves them to the namespace
	GPUs            int    // of a pod, as nvidia.com/gpu; 0 is none
	Claim           string // a volume that all pods may write at once, with data and checkpoints
	Mount           string // where pods have it
	Secret          string // whose keys become the environment, "" for none
	Run             []byte // the run file
	Retries         int    // times that the whole job is started again
}

// dnsLabel is what names of objects look like.
var dnsLabel = regexp.MustCompile(`^[a-z0-9]([-a-z0-9]{0,50}[a-z0-9])?$`)

// quantity is a number with a unit of Kubernetes.
var quantity = regexp.MustCompile(`^[0-9]+(\.[0-9]+)?(m|k|M|G|T|Ki|Mi|Gi|Ti)?$`)

func (m *Manifest) check() error {
	for _, c := range []struct {
		ok          bool
		flag, value string
		want        string
	}{
		{dnsLabel.MatchString(m.Name), "--name", m.Name, "small letters, digits and hyphens, at most 52"},
		{m.Namespace == "" || dnsLabel.MatchString(m.Namespace), "--namespace", m.Namespace, "a name of a namespace"},
		{m.Image != "", "--image", m.Image, "an image that has lfactor in its path"},
		{m.Hosts > 0, "--hosts", strconv.Itoa(m.Hosts), "at least 1"},
		{m.CPU == "" || quantity.MatchString(m.CPU), "--cpu", m.CPU, "a quantity as 8 or 500m"},
		{m.Memory == "" || quantity.MatchString(m.Memory), "--memory", m.Memory, "a quantity as 64Gi"},
		{m.GPUs >= 0, "--gpus", strconv.Itoa(m.GPUs), "0 or more"},
		{dnsLabel.MatchString(m.Claim), "--claim", m.Claim, "a PersistentVolumeClaim with ReadWriteMany"},
		{path.IsAbs(m.Mount) && path.Clean(m.Mount) != "/", "--mount", m.Mount, "an absolute path"},
		{m.Secret == "" || dnsLabel.MatchString(m.Secret), "--secret", m.Secret, "a name of a secret"},
		{m.Retries >= 0, "--retries", strconv.Itoa(m.Retries), "0 or more"},
	} {
		if !c.ok {
			return exit.Usagef("%s %q: want %s", c.flag, c.value, c.want)
		}
	}
	return nil
}

type object = map[string]any

// Write is the manifest as YAML: a service account without rights, for lfactor asks nothing of the API
// server, the run file as a config map, and the job.
func (m *Manifest) Write() ([]byte, error) {
	if err := m.check(); err != nil {
		return nil, err
	}
	meta := func(name string) object {
		o := object{"name": name, "labels": m.labels()}
		if m.Namespace != "" {
			o["namespace"] = m.Namespace
		}
		return o
	}
	var out bytes.Buffer
	fmt.Fprintf(&out, "# %d pods train what the config map has. kubectl apply -f this; kubectl logs -f job/%s; kubectl "+
		"delete saves and ends.\n", m.Hosts, m.Name)
	e := yaml.NewEncoder(&out)
	e.SetIndent(2)
	for _, o := range []object{
		{"apiVersion": "v1", "kind": "ServiceAccount", "metadata": meta(m.Name),
			"automountServiceAccountToken": false},
		{"apiVersion": "v1", "kind": "ConfigMap", "metadata": meta(m.Name),
			"data": object{"run.yaml": string(m.Run)}},
		{"apiVersion": "batch/v1", "kind": "Job", "metadata": meta(m.Name), "spec": object{
			"completionMode": "Indexed", "completions": m.Hosts, "parallelism": m.Hosts,
			"backoffLimit": m.Retries * m.Hosts,
			// a configuration that is wrong, or does not fit, or a state that is corrupt, is so the next time too a
			// host that is drained or taken back is no fault of the run's: another pod joins and it goes on
			"podFailurePolicy": object{"rules": []object{{"action": "Ignore", "onPodConditions": []object{
				{"type": "DisruptionTarget", "status": "True"}}}, {"action": "FailJob", "onPodConditions": []object{},
				"onExitCodes": object{
					"containerName": "lfactor", "operator": "In",
					"values": []int{exit.Usage, exit.Fit, exit.Corrupt}}}}},
			"template": object{"metadata": object{"labels": m.labels()}, "spec": m.pod()}}},
	} {
		if err := e.Encode(o); err != nil {
			return nil, err
		}
	}
	return out.Bytes(), e.Close()
}

func (m *Manifest) labels() object {
	return object{"app.kubernetes.io/name": "lfactor", "app.kubernetes.io/instance": m.Name}
}

func (m *Manifest) pod() object {
	field := func(of string) object { return object{"fieldRef": object{"fieldPath": of}} }
	env := []object{{"name": EnvJob, "value": m.Name}, {"name": EnvHosts, "value": strconv.Itoa(m.Hosts)},
		{"name": EnvMeet, "value": m.Mount}, {"name": "HOME", "value": "/home/lfactor"},
		{"name": EnvUID, "valueFrom": field("metadata.labels['batch.kubernetes.io/controller-uid']")},
		{"name": EnvPod, "valueFrom": field("metadata.name")}, {"name": EnvPodIP, "valueFrom": field("status.podIP")}}
	limits := object{}
	if m.GPUs > 0 {
		limits["nvidia.com/gpu"] = m.GPUs
	}
	if m.Memory != "" {
		limits["memory"] = m.Memory
	}
	requests := object{}
	if m.CPU != "" {
		requests["cpu"] = m.CPU
	}
	if m.Memory != "" {
		requests["memory"] = m.Memory
	}
	// kubelet ends a pod whose agent no longer answers; one that has not joined yet has none
	alive := object{"exec": object{"command": []string{"lfactor", "cluster", "alive"}}, "periodSeconds": 20,
		"timeoutSeconds": 10}
	container := object{"name": "lfactor", "image": m.Image,
		"command": []string{"lfactor", "cluster", "join", "--kubernetes", "--", "train",
			"/run/lfactor/run.yaml"},
		"env": env, "workingDir": m.Mount, "livenessProbe": alive,
		"resources": object{"limits": limits, "requests": requests},
		"securityContext": object{"allowPrivilegeEscalation": false,
			"capabilities": object{"drop": []string{"ALL"}}},
		"volumeMounts": []object{{"name": "run", "mountPath": "/run/lfactor", "readOnly": true},
			{"name": "data", "mountPath": m.Mount}, {"name": "home", "mountPath": "/home/lfactor"},
			{"name": "shm", "mountPath": "/dev/shm"}}}
	if m.Secret != "" {
		container["envFrom"] = []object{{"secretRef": object{"name": m.Secret}}}
	}
	return object{"serviceAccountName": m.Name, "automountServiceAccountToken": false,
		"restartPolicy":                 "Never",
		"terminationGracePeriodSeconds": 120,
		"securityContext": object{"runAsNonRoot": true, "runAsUser": 1000, "runAsGroup": 1000,
			"fsGroup":        1000,
			"seccompProfile": object{"type": "RuntimeDefault"}},
		// pods on hosts of their own, where there are enough
		"topologySpreadConstraints": []object{{"maxSkew": 1, "topologyKey": "kubernetes.io/hostname",
			"whenUnsatisfiable": "ScheduleAnyway", "labelSelector": object{"matchLabels": m.labels()}}},
		"containers": []object{container},
		"volumes": []object{{"name": "run", "configMap": object{"name": m.Name}},
			{"name": "data", "persistentVolumeClaim": object{"claimName": m.Claim}},
			{"name": "home", "emptyDir": object{}}, {"name": "shm", "emptyDir": object{"medium": "Memory"}}}}
}
