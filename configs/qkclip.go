package configs

import (
	"slices"
)

// QKClip is the section optimizer.qk_clip: projections of queries and keys shrink behind a step in which a
// score of attention was too great.
type QKClip struct {
	Limit float64 `key:"limit" default:"0" min:"0" class:"fixed" flag:"qk-clip=100,qk-clip-threshold" doc:"Greatest score of attention, before its softmax, that a step may have: behind one with more, queries and keys of its heads shrink until they give it (arXiv:2507.20534, QK-clip; 100 there). 0 is none."`
	Alpha float64 `key:"alpha" default:"0.5" min:"0" max:"1" class:"fixed" flag:"qk-clip-alpha" doc:"Power of that factor that queries shrink by; keys have the rest. What turns in latent attention shrinks with the queries."`
}

// Check implements section.
func (q *QKClip) Check(at faults) {
	if q.Limit == 0 && q.Alpha != 0.5 {
		at.fault("optimizer.qk_clip.alpha", "is not read: optimizer.qk_clip.limit is 0",
			"set it, as 100, or remove alpha")
	}
}

// qkClip lets --qk-clip-threshold say the limit where --qk-clip stands beside it, wherever that is: without
// it Megatron clips nothing.
func (l *loader) qkClip() {
	const key = "optimizer.qk_clip.limit"
	at := l.flagged(key, "--qk-clip-threshold")
	if at < 0 {
		return
	}
	if l.flagged(key, "--qk-clip") < 0 {
		l.c.Notices = append(l.c.Notices,
			"--qk-clip-threshold "+l.c.given[key][at].node.Value+": nothing is clipped without --qk-clip")
		l.c.given[key] = slices.Delete(l.c.given[key], at, at+1)
		return
	}
	l.c.given[key] = slices.DeleteFunc(l.c.given[key], func(s setting) bool { return s.origin.Text == "--qk-clip" })
}
