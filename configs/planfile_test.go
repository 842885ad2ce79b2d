package configs

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestPlanFile(t *testing.T) {
	p := PlanFile{Model: "llama layers=4 #1", Settings: []string{"plan.pp=2", "plan.layers=[1, 3]",
		"plan.schedule=zb-v"}}
	again, err := ReadPlan("p.yaml", p.Text("one", "two"))
	require.NoError(t, err)
	require.Equal(t, p.Model, again.Model)
	require.Equal(t, p.Settings, again.Settings)
	for text, want := range map[string]string{
		"":                                 "p.yaml: is not a plan",
		"model: x\n":                       "names no model or no settings",
		"modle: x\n":                       `p.yaml:1: modle: is not part of a plan; did you mean "model"?`,
		"model: x\nsettings: 3\n":          "p.yaml:2: settings: is not a mapping",
		"model: x\nsettings:\n  plan.p: 3": `p.yaml:3: settings.plan.p: is not a setting of a plan; did you mean "plan.pp"?`,
		"model: x\nmodel: y\n":             "is there twice",
	} {
		_, err := ReadPlan("p.yaml", []byte(text))
		require.ErrorContains(t, err, want)
		require.NotEmpty(t, Faults(err))
	}
	c := &Config{Model: Model{ModelType: "llama", Layers: 8}}
	require.ErrorContains(t, again.Fits(c),
		"p.yaml:3: model: the plan is for another model: llama layers=4 #1, the run has llama layers=8")
	again.Model = c.Model.Identity()
	require.NoError(t, again.Fits(c))
	c.Model.RopeTheta = 7
	require.Error(t, again.Fits(c), "what does not show in words is in the hash")
}

func FuzzReadPlan(f *testing.F) {
	f.Add("model: x\nsettings:\n  plan.pp: 2\n  plan.layers: [1, 2]\n")
	f.Add("settings: {plan.pp: &a 1}\n")
	f.Fuzz(func(t *testing.T, text string) {
		p, err := ReadPlan("f.yaml", []byte(text))
		if err != nil {
			require.NotEmpty(t, Faults(err))
			return
		}
		for _, s := range p.Settings {
			require.True(t, strings.HasPrefix(s, "plan.") || strings.HasPrefix(s, "train."))
		}
	})
}
