package sample

// shares counts the tokens that were computed for each share, so that requests that wait are let in fairly: the next is
// of the share that has had least (virtual token counters: Sheng et al. 2024, Fairness in Serving Large Language Models).
type shares map[string]int

// enter has a share that had nothing to do go on behind the least of those that have: being away saves nothing up.
func (c shares) enter(share string, active ...[]*sequence) {
	least, any := 0, false
	for _, l := range active {
		for _, s := range l {
			if s.Share == share {
				return
			}
			if n := c[s.Share]; !any || n < least {
				least, any = n, true
			}
		}
	}
	c[share] = max(c[share], least)
}

// count adds what a step has computed.
func (c shares) count(parts []part) {
	for _, p := range parts {
		c[p.seq.Share] += p.to - p.from
	}
}

// order is in which order sequences are let in: each share's as they came.
func (c shares) order(waiting []*sequence) []*sequence {
	left := map[string][]*sequence{}
	var names []string // in the order in which they came
	for _, s := range waiting {
		if left[s.Share] == nil {
			names = append(names, s.Share)
		}
		left[s.Share] = append(left[s.Share], s)
	}
	if len(names) < 2 {
		return waiting
	}
	had := shares{}
	for _, n := range names {
		had[n] = c[n]
	}
	out := make([]*sequence, 0, len(waiting))
	for len(out) < len(waiting) {
		next := -1
		for i, n := range names {
			if len(left[n]) > 0 && (next < 0 || had[n] < had[names[next]]) {
				next = i
			}
		}
		n := names[next]
		s := left[n][0]
		left[n] = left[n][1:]
		had[n] += len(s.tokens) - s.done
		out = append(out, s)
	}
	return out
}
