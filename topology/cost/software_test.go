package cost_test

import (
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lfactor/lfactor/configs"
	"github.com/lfactor/lfactor/topology/cost"
)

// plainMachine is an H100's description with more lines.
func plainMachine(t *testing.T, more string) *cost.Machine {
	t.Helper()
	text, err := configs.ClusterFile("h100")
	require.NoError(t, err)
	m, err := cost.Read("h100", append(text, more...))
	require.NoError(t, err)
	return m
}

// leaf is a line of a description that sets a value.
var leaf = regexp.MustCompile(`(?m)^(  [\w.]+: )(\S+)(.*)$`)

// TestSoftwareLeaves: every leaf of every description that comes with lfactor is read: with another value the machine is
// another one.
func TestSoftwareLeaves(t *testing.T) {
	other := map[string]string{"fused": "fa2", "fa2": "fused", "none": "products", "products": "none", "once": "copies",
		"copies": "once", "runs": "once", "true": "false"}
	m, leaves := plainMachine(t, ""), 0
	for _, name := range configs.Softwares() {
		_, text, err := configs.SoftwareFile(name)
		require.NoError(t, err)
		want, err := m.With(name)
		require.NoError(t, err, name)
		for _, at := range leaf.FindAllSubmatchIndex(text, -1) {
			value := string(text[at[4]:at[5]])
			if other[value] == "" {
				other[value] = value + "7"
				if value == "0" {
					other[value] = "7"
				}
			}
			file := filepath.Join(t.TempDir(), "x.yaml")
			changed := string(text[:at[4]]) + other[value] + string(text[at[5]:])
			require.NoError(t, os.WriteFile(file, []byte(changed), 0o600))
			got, err := m.With(file)
			require.NoError(t, err, changed)
			got.Software.Name = want.Software.Name
			require.False(t, reflect.DeepEqual(want, got), "%s: line %q does nothing", name, text[at[2]:at[7]])
			leaves++
		}
	}
	require.Greater(t, leaves, 40)
}

// TestSoftwareRefused: what is wrong with a description of software is said with its file, line and key.
func TestSoftwareRefused(t *testing.T) {
	m := plainMachine(t, "")
	for _, c := range []struct{ text, says string }{
		{"attention:\n  kernal: fa2\n", "x.yaml:2: attention.kernal: is not a setting of software; there are traffic.OP, calls.OP"},
		{"attention:\n  kernel: fa9\n", `x.yaml:2: attention.kernel: "fa9" is none of its values; one of fused, fa2`},
		{"traffic:\n  rmsnrm: 2\n", "x.yaml:2: traffic.rmsnrm: is no kernel"},
		{"calls:\n  rope: 0\n", `x.yaml:2: calls.rope: 0 must be greater than 0`},
		{"experts:\n  per_expert: 22\n", `x.yaml:2: experts.per_expert: "" is not a unit for it`},
		{"memory:\n  reserve: 1\n", "x.yaml:2: memory.reserve: 1 leaves no memory"},
		{"loss:\n  bytes: 1 B\n  bytes: 2 B\n", "x.yaml:3: loss.bytes: is there twice, first in line 2"},
		{"with: x.yaml\n", "begins from itself"},
	} {
		t.Chdir(t.TempDir())
		require.NoError(t, os.WriteFile("x.yaml", []byte(c.text), 0o600))
		_, err := m.With("x.yaml")
		require.ErrorContains(t, err, c.says)
	}
	for name, says := range map[string]string{
		"megatron-bridge@1":   "of megatron-bridge there is no version 1; one of 25.09, 25.11, 26.02, 26.02.01",
		"megatron":            "is no software that comes with lfactor, and no file; one of automodel",
		"lfactor,tp.overlap=": "tp.overlap: \"\" is none of its values; one of none, products",
	} {
		_, err := m.With(name)
		require.ErrorContains(t, err, says)
	}
}

// TestSoftwareBelowCluster: what a cluster file says for itself stands, and is told; a file may name its software, and
// later descriptions and settings win over earlier ones.
func TestSoftwareBelowCluster(t *testing.T) {
	m := plainMachine(t, "  dispatch: copies\n")
	got, err := m.With("deepseek")
	require.NoError(t, err)
	require.False(t, got.Dispatch)
	require.Equal(t, []string{"network.dispatch of the cluster file stands for experts.dispatch of deepseek.yaml"},
		got.Software.Notes)
	text, err := configs.ClusterFile("h100")
	require.NoError(t, err)
	shares, err := cost.Read("shares", []byte(strings.Replace(string(text), "\nhost:\n", "\nhost:\n  once: 0.5\n", 1)))
	require.NoError(t, err)
	shares, err = shares.With("deepseek")
	require.NoError(t, err)
	require.True(t, shares.Dispatch)
	require.Equal(t, []string{"host.once of the cluster file stands for the share that follows from experts.dispatch of deepseek.yaml"},
		shares.Software.Notes)
	named := plainMachine(t, "software: megatron-bridge@26.06,attention.kernel=fa2\n")
	require.True(t, named.Dispatch)
	require.Equal(t, "fa2", named.Software.Attention)
	require.Zero(t, named.PerExpert, "26.06 begins from megatron-bridge and has one kernel for all experts")
	back, err := cost.Read("back.yaml", named.Write())
	require.NoError(t, err)
	require.Equal(t, named.Software.Name, back.Software.Name)
	older, err := m.With("megatron-bridge@25.09")
	require.NoError(t, err)
	require.InDelta(t, 22e-6, older.PerExpert, 1e-12)
	require.True(t, strings.HasPrefix(older.Software.Settings[0], configs.Unsaid+"plan.overlap="))
}

// TestRuns: rows whose experts lie side by side travel to as few devices as have them.
func TestRuns(t *testing.T) {
	m, err := plainMachine(t, "").With("experts.dispatch=runs")
	require.NoError(t, err)
	devices := make([]int, 64)
	for i := range devices {
		devices[i] = i
	}
	copies := *m
	copies.Dispatch = false
	// 8 of 256 experts on 64 devices are on two of one host: a quarter of the copies inside it, an eighth between hosts
	far := m.Routed(8, 256, 1).Exchange(devices, 1<<30) - m.Remote.Latency
	require.InEpsilon(t, (copies.Exchange(devices, 1<<30)-m.Remote.Latency)/8, far, 1e-9)
	near := m.Routed(8, 64, 1).Exchange(devices[:8], 1<<30) - m.Local.Latency
	require.InEpsilon(t, (copies.Exchange(devices[:8], 1<<30)-m.Local.Latency)/8, near, 1e-9)
}
