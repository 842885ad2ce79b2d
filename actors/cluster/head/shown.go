package head

import (
	"maps"
	"slices"
	"strings"
)

// hidden takes the place of what is not shown.
const hidden = "[hidden]"

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
		j.Procs[n].Why = hide(j.Procs[n].Why)
	}
	j.Widths = slices.Clone(j.Widths)
	for n := range j.Widths {
		j.Widths[n].Args = hideAll(j.Widths[n].Args)
	}
	j.Why, j.Spec.Name = hide(j.Why), hide(j.Spec.Name)
	return j
}

// hideValues hides the values of NAME=value.
func hideValues(env []string) []string {
	env = slices.Clone(env)
	for i, x := range env {
		if name, _, ok := strings.Cut(x, "="); ok {
			env[i] = name + "=" + hidden
		}
	}
	return env
}

func hideAll(texts []string) []string {
	texts = slices.Clone(texts)
	for i := range texts {
		texts[i] = hide(texts[i])
	}
	return texts
}

// hide hides what stands before the @ of an address in a text, as in https://user:password@host, and the
// query of one, which is where signed addresses have their signature.
func hide(text string) string {
	var out strings.Builder
	for {
		i := strings.Index(text, "://")
		if i < 0 {
			return out.String() + text
		}
		rest := text[i+3:]
		n := strings.IndexAny(rest, " \t\n\"'<>,;")
		if n < 0 {
			n = len(rest)
		}
		out.WriteString(text[:i+3])
		out.WriteString(hideAddress(rest[:n]))
		text = rest[n:]
	}
}

// hideAddress is what follows the :// of an address, without what is secret there.
func hideAddress(a string) string {
	end := strings.IndexAny(a, "/?#")
	if end < 0 {
		end = len(a)
	}
	if at := strings.LastIndexByte(a[:end], '@'); at >= 0 {
		a = hidden + a[at:]
	}
	if path, query, ok := strings.Cut(a, "?"); ok && query != "" {
		a = path + "?" + hidden
	}
	return a
}
