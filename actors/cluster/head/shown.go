package head

import (
	"maps"
	"slices"
	"strings"

	"github.com/lfactor/lfactor/actors/cluster/head/decide"
)

// shown is a job as it is told to users: without the contents of the files that it came with, the values of
// its environment, and passwords in addresses, since whoever may look at jobs need not know them.
func shown(j Job) Job {
	j.Spec.Files = maps.Clone(j.Spec.Files)
	for name := range j.Spec.Files {
		j.Spec.Files[name] = nil
	}
	j.Spec.Env = hideValues(j.Spec.Env)
	j.Spec.Args = hideAll(j.Spec.Args)
	j.Procs = slices.Clone(j.Procs)
	for n := range j.Procs {
		j.Procs[n].Env = hideValues(j.Procs[n].Env)
		j.Procs[n].Why, j.Procs[n].Hung = decide.Hide(j.Procs[n].Why), decide.Hide(j.Procs[n].Hung)
	}
	j.Widths = slices.Clone(j.Widths)
	for n := range j.Widths {
		j.Widths[n].Args = hideAll(j.Widths[n].Args)
	}
	j.Why, j.Spec.Name = decide.Hide(j.Why), decide.Hide(j.Spec.Name)
	return j
}

// hideValues hides the values of NAME=value.
func hideValues(env []string) []string {
	env = slices.Clone(env)
	for i, x := range env {
		if name, _, ok := strings.Cut(x, "="); ok {
			env[i] = name + "=" + decide.Hidden
		}
	}
	return env
}

// hideAll hides secrets in a copy of the texts; the original still has to start processes.
func hideAll(texts []string) []string {
	texts = slices.Clone(texts)
	for i := range texts {
		texts[i] = decide.Hide(texts[i])
	}
	return texts
}
